"""What a machine draws, phase by phase."""

import math
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.device.counters import MICRO, Assumed, Unavailable
from hpctrip.device.meter import PHASES, Meter, Metering, meter_ranks, open_meter


class Counter:
    """A counter that shows the numbers of a list, one a reading; None: it cannot be read."""

    place, most_w, range_uj = "counter", math.inf, 0

    def __init__(self, readings):
        self.readings = iter(readings)

    def read_uj(self):
        found = next(self.readings)
        if found is None:
            raise Unavailable("gone")
        return found


def rounds(meter, number):
    """The meter's rounds, each with one lap a phase."""
    for _ in range(number):
        for phase in PHASES:
            meter.lap(phase)
        yield meter.round_uj()


@given(st.lists(st.integers(0, 10**15), min_size=5, max_size=21), st.integers(0, 10**18))
def test_the_joules_of_the_phases_sum_to_the_counters_difference(steps, start):
    counter = [start]
    for step in steps:
        counter.append(counter[-1] + step)
    number = len(counter) // len(PHASES)
    found = list(rounds(Meter([Counter(counter)]), number))
    read = counter[: number * len(PHASES)]
    assert sum(sum(phases.values()) for phases in found) == read[-1] - read[0]
    assert found[0]["record"] == 0  # the first lap begins the count


def test_several_sources_are_added_and_each_phase_has_its_own():
    meter = Meter([Counter([0, 10, 11, 20]), Counter([5, 5, 105, 105])])
    assert list(rounds(meter, 1)) == [{"record": 0, "train": 10, "exchange": 101, "evaluate": 9}]


def test_a_round_in_which_a_counter_could_not_be_read_is_not_known_and_neither_is_a_gap_after_it():
    readings = [0, 1, None, 3, *(4, 5, 6, None), *(8, 9, 10, 11), *(12, 13, 14, 15)]
    first, second, third, fourth = rounds(Meter([Counter(readings)]), 4)
    assert first is None and second is None and third is None
    assert fourth == dict.fromkeys(PHASES, 1)


def test_a_round_in_which_a_counter_falls_is_not_known():
    """As NVML's does when the driver is loaded anew."""
    readings = [5, 9, 0, 1, *(2, 3, 4, 5)]
    assert list(rounds(Meter([Counter(readings)]), 2)) == [None, dict.fromkeys(PHASES, 1)]


def test_a_gap_in_the_middle_of_a_phase_makes_the_round_unknown():
    """As a reading in between finds it."""
    meter = Meter([Counter([0, None, *range(2, 10)])])
    meter.lap("record")
    assert meter.read_uj() is None
    assert list(rounds(meter, 1)) == [None]
    assert next(rounds(meter, 1)) == dict.fromkeys(PHASES, 1)
    assert meter.description == "; not known in some rounds: gone"


def test_a_counter_that_could_wrap_within_a_phase_is_read_in_between_until_the_meter_is_gone():
    class Wrapping:
        place, most_w, range_uj = "wrapping", 1000.0, 2 * MICRO  # around in 2 ms
        often, gone = threading.Event(), threading.Event()
        readings = 0

        def read_uj(self):
            Wrapping.readings += 1
            if Wrapping.readings > 3:
                Wrapping.often.set()
            return 0

    meter = Meter([counter := Wrapping()])
    assert counter.often.wait(60)  # nobody ends a phase
    weakref.finalize(counter, counter.gone.set)
    del meter, counter
    assert Wrapping.gone.wait(60)


def test_assumed_watts_are_time_in_another_unit():
    seconds = iter([10.0, 12.5])
    source = Assumed(30.0, lambda: next(seconds))
    assert [source.read_uj(), source.read_uj()] == [300 * MICRO, 375 * MICRO]


def test_watts_are_assumed_only_where_nothing_is_counted(rapl_tree):
    without = open_meter(Metering(assumed_w=80.0), [])
    assert "assumed 80 W (not counted: no CPU counters" in without.description
    assert next(rounds(without, 1)) is not None
    rapl_tree.zone("0", "package-0")
    assert open_meter(Metering(assumed_w=80.0), []).description == "1 CPU package (RAPL)"
    assert list(rounds(open_meter(Metering(enabled=False, assumed_w=80.0), []), 2)) == [None, None]


@pytest.mark.parametrize(
    ("machines", "readers"),
    [
        (["a"], [0]),
        (["a", "a", "a"], [1]),  # rank 0 only waits: a host's phases are those of the energy
        (["a", "b", "a", "b"], [1, 2]),
        (["a", "b", "b"], [0, 1]),  # nobody trains beside rank 0
    ],
)
def test_one_rank_of_each_machine_reads_its_counters_and_it_is_one_that_trains_if_any_does(machines, readers):
    assert meter_ranks(machines, range(1, len(machines)) if len(machines) > 1 else range(1)) == readers
