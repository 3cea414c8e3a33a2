"""The counters of CPUs, in a made-up tree."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.device.counters import MICRO, Unavailable, Zone, cpus


def test_packages_and_their_memory_are_counted_once(rapl_tree):
    rapl_tree.zone("0", "package-0", 1000)
    rapl_tree.zone("0:0", "core", 50)  # part of the package
    rapl_tree.zone("0:1", "dram", 7)
    rapl_tree.zone("1", "package-1")
    rapl_tree.zone("2", "psys", 10**9)  # holds the packages
    (rapl_tree.folder / "intel-rapl:9").mkdir()  # no zone
    found = cpus()
    assert found.name == "2 CPU packages with memory (RAPL)" and found.read_uj() == 0
    for zone, uj in (("0", 5), ("0:0", 3), ("0:1", 20), ("1", 100), ("2", 1000)):
        rapl_tree.draw(zone, uj)
    assert found.read_uj() == 125


@settings(max_examples=20)
@given(st.lists(st.integers(0, 999), min_size=1, max_size=30), st.integers(0, 999))
def test_a_counter_that_wraps_around_goes_on(new_tree, steps, start):
    tree = new_tree()
    zone = Zone(tree.zone("0", "package-0", start, range_uj=1000), clock=lambda: 0.0)
    total = 0
    for step in steps:
        tree.draw("0", step)
        total += step
        assert zone.read_uj() == total


def test_a_phase_in_which_the_counter_may_have_wrapped_twice_is_not_known(rapl_tree):
    now = [0.0]
    folder = rapl_tree.zone("0", "package-0", range_uj=1000 * MICRO)
    (folder / "constraint_0_power_limit_uw").write_text(str(1000 * MICRO))  # a second from end to end
    zone = Zone(folder, lambda: now[0])
    now[0] = 0.9
    rapl_tree.draw("0", 5)
    assert zone.read_uj() == 5
    now[0] = 3.0
    with pytest.raises(Unavailable, match="not read for 2 s, it may have wrapped around twice"):
        zone.read_uj()
    rapl_tree.draw("0", 5)
    now[0] = 3.5
    assert zone.read_uj() == 10


@pytest.mark.parametrize("content", ["", "many\n"])
def test_a_counter_that_shows_no_number_is_named(rapl_tree, content):
    folder = rapl_tree.zone("0", "package-0")
    (folder / "energy_uj").write_text(content)
    with pytest.raises(Unavailable, match=r"intel-rapl:0/energy_uj: holds no number"):
        cpus()


def test_a_missing_file_of_a_counter_is_named(rapl_tree):
    (rapl_tree.zone("0", "package-0") / "max_energy_range_uj").unlink()
    with pytest.raises(Unavailable, match="intel-rapl:0/max_energy_range_uj: No such file"):
        cpus()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_counter_that_only_root_may_read_is_named(rapl_tree):
    (rapl_tree.zone("0", "package-0") / "energy_uj").chmod(0)
    with pytest.raises(Unavailable, match="Permission denied"):
        cpus()


def test_a_machine_without_counters_says_where_it_looked(rapl_tree):
    with pytest.raises(Unavailable, match=f"no CPU counters.*{rapl_tree.folder}"):
        cpus()
