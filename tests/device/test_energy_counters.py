"""The counters of CPUs, in a made-up tree, and what is believed of a counter."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.device.counters import MICRO, CheckedCounter, Unavailable, Zone, cpus, working

RANGE_UJ = 1000 * MICRO


def test_packages_and_their_memory_are_counted_once(rapl_tree):
    rapl_tree.zone("0", "package-0", 1000)
    rapl_tree.zone("0:0", "core", 50)  # part of the package
    rapl_tree.zone("0:1", "dram", 7)
    rapl_tree.zone("1", "package-1")
    rapl_tree.zone("2", "psys", 10**9)  # holds the packages
    (rapl_tree.folder / "intel-rapl:9").mkdir()  # no zone
    found = cpus()
    assert found.name == "2 CPU packages with memory (RAPL)"
    before = [zone.read_uj() for zone in found.counters]
    for zone, uj in (("0", 5), ("0:0", 3), ("0:1", 20), ("1", 100), ("2", 1000)):
        rapl_tree.draw(zone, uj)
    assert [zone.read_uj() for zone in found.counters] == [before[0] + 5, before[1] + 20, before[2] + 100]


@pytest.mark.parametrize(
    ("second_uj", "names"),
    [
        (
            10**9,
            ["package-0-die-0", "dram", "package-1-die-0"],
        ),  # the same counter once more (AMD Zen 1 and 2)
        (10**9 + 400_000, ["package-0-die-0", "dram", "package-1-die-0"]),  # read a little later
        # two dies that are counted apart
        (2 * 10**9, ["package-0-die-0", "dram", "package-0-die-1", "dram", "package-1-die-0"]),
    ],
)
def test_a_counter_that_is_shown_for_each_die_of_its_socket_is_counted_once(rapl_tree, second_uj, names):
    for number, name, uj in (("0", "package-0-die-0", 10**9), ("1", "package-0-die-1", second_uj)):
        rapl_tree.zone(number, name, uj)
        rapl_tree.zone(f"{number}:0", "dram", uj // 3)
    rapl_tree.zone("2", "package-1-die-0", 10**9)  # another socket, which has drawn as much
    assert [zone.name for zone in cpus().counters] == names


def test_counters_that_stand_still_count_nothing_and_are_named(rapl_tree):
    rapl_tree.zone("0", "package-0")
    rapl_tree.zone("0:0", "dram", 7)
    rapl_tree.still = {"0:0"}
    found = cpus()
    assert found.name == "1 CPU package (RAPL)"
    assert found.not_counted == [f"{rapl_tree.folder}/intel-rapl:0:0/energy_uj: stands still at 7"]
    rapl_tree.still = {"0", "0:0"}
    with pytest.raises(Unavailable, match=r"intel-rapl:0/energy_uj: stands still at \d+; .*intel-rapl:0:0/"):
        cpus()


@pytest.mark.parametrize(
    ("number", "name", "content", "reason"),
    [
        ("0:0", "dram", "", "holds no number"),
        ("1", "package-1", "many\n", "holds no number"),
        ("1", None, "", "No such file or directory"),
    ],
)
def test_a_counter_that_cannot_be_read_is_named_and_hides_no_other(rapl_tree, number, name, content, reason):
    rapl_tree.zone("0", "package-0")
    rapl_tree.still = {number}
    if name:
        (rapl_tree.zone(number, name) / "energy_uj").write_text(content)
    else:  # containers hide what the link leads to
        (rapl_tree.folder / f"intel-rapl:{number}").symlink_to("hidden")
    found = cpus()
    assert (found.name, len(found.counters)) == ("1 CPU package (RAPL)", 1)
    (line,) = found.not_counted
    assert f"intel-rapl:{number}/" in line and line.endswith(reason)


def test_a_counter_that_cannot_be_read_for_a_moment_counts():
    """As a file that is being replaced."""
    devices = {"steady": Device(0, *range(1, 9)), "torn": Device(0, 1, None, 2)}
    devices["torn first"], devices["gone"] = Device(0, None, 1, 2), Device(0, *[None] * 999)
    found, (line,) = working(devices.get, devices)
    assert found == [devices[name] for name in ("steady", "torn", "torn first")] and line == "device: torn"


@pytest.mark.parametrize(
    ("name", "limits_w", "most_w"),
    [
        ("package-0", (), 550),
        ("package-0", (120, 800), 800),
        ("package-0", (4095.875, 120), 550),  # unlimited
        ("dram", (3408,), 250),
    ],
)
def test_a_limit_that_no_device_can_draw_is_none(rapl_tree, name, limits_w, most_w):
    rapl_tree.zone("0", "package-0")
    folder = rapl_tree.zone("0:0", name)
    for number, limit_w in enumerate(limits_w):
        (folder / f"constraint_{number}_power_limit_uw").write_text(f"{limit_w * MICRO:.0f}\n")
    assert Zone(folder).most_w == most_w


@pytest.mark.parametrize(("phase_s", "is_known"), [(30, True), (500, True), (600, False)])
def test_a_long_phase_is_known_unless_one_more_turn_of_the_counter_would_be_possible_too(
    rapl_tree, phase_s, is_known
):
    """At 90 W and 262 kJ a turn: after 500 s it would have been 614 W, after 600 s 527 W."""
    now, folder = [0.0], rapl_tree.zone("0", "package-0")
    (folder / "constraint_0_power_limit_uw").write_text("4095875000")
    counter = CheckedCounter(Zone(folder), lambda: now[0])
    counter.read_uj()
    now[0] = phase_s
    rapl_tree.draw("0", 90 * phase_s * MICRO)
    if is_known:
        assert counter.read_uj() == 90 * phase_s * MICRO
    else:
        with pytest.raises(Unavailable, match="not read for 600 s, it may have wrapped around twice"):
            counter.read_uj()


@settings(max_examples=20)
@given(st.lists(st.integers(0, RANGE_UJ // 2), min_size=1, max_size=30), st.integers(0, RANGE_UJ - 1))
def test_a_counter_that_wraps_around_goes_on(new_tree, steps, start):
    tree = new_tree()
    counter = CheckedCounter(Zone(tree.zone("0", "package-0", start, range_uj=RANGE_UJ)), clock=lambda: 0.0)
    total = counter.read_uj()
    for step in steps:
        tree.draw("0", step)
        total += step
        assert counter.read_uj() == total


def test_a_phase_in_which_the_counter_may_have_wrapped_twice_is_not_known(rapl_tree):
    now = [0.0]
    folder = rapl_tree.zone("0", "package-0", range_uj=RANGE_UJ)
    (folder / "constraint_0_power_limit_uw").write_text(str(1000 * MICRO))  # a second from end to end
    counter = CheckedCounter(Zone(folder), lambda: now[0])
    assert counter.read_uj() == 0
    now[0] = 0.9
    rapl_tree.draw("0", 5)
    assert counter.read_uj() == 5
    now[0] = 3.0
    with pytest.raises(Unavailable, match="not read for 2 s, it may have wrapped around twice"):
        counter.read_uj()
    rapl_tree.draw("0", 5)
    now[0] = 3.5
    assert counter.read_uj() == 10


class Device:
    """A device of at most 100 W whose counter shows the numbers of a list, in joules, one a reading; None: it cannot
    be read."""

    place, most_w = "device", 100.0

    def __init__(self, range_j, *readings_j):
        self.range_uj, self._readings = range_j * MICRO, iter(readings_j)

    def read_uj(self):
        if (reading_j := next(self._readings)) is None:
            raise Unavailable("device: torn")
        return reading_j * MICRO


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        (Device(0, 5000, 5100, 100, 150), "-5000 J in 10 s"),  # a GPU, after its driver was loaded anew
        (Device(262_000, 1000, 1100, 100, 150), "261000 J in 10 s"),  # set back, not wrapped around
        (Device(0, 5000, 5100, 9000, 9050), "3900 J in 10 s"),
    ],
)
def test_joules_that_a_device_cannot_draw_are_not_known_and_those_after_it_are(device, problem):
    seconds = iter([0.0, 10.0, 20.0, 30.0])
    counter = CheckedCounter(device, lambda: next(seconds))
    assert [counter.read_uj(), counter.read_uj()] == [0, 100 * MICRO]
    with pytest.raises(Unavailable, match=rf"device: {problem} are not possible \(at most 100 W\)"):
        counter.read_uj()
    assert counter.read_uj() == 150 * MICRO


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
