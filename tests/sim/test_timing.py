from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpctrip.base.errors import InputError
from hpctrip.base.series import never, next_step_s
from hpctrip.sim.rounds import Status
from hpctrip.sim.timing import Timing, elapsed_s

STEP_S = 300.0
CHANGES = partial(next_step_s, step_s=STEP_S)
"""Power may change every 300 s."""


def stepped(*powers):
    """Power of one site (or rows of several) that changes every 300 s and stays at the last value."""
    table = np.atleast_2d(np.array(powers, dtype=float).T).T
    return lambda t: table[min(int(t // STEP_S), len(table) - 1)]


def test_steady_power_stretches_the_work_by_its_inverse():
    compute_s = elapsed_s(lambda t: np.array([1.0, 0.5, 0.1]), never, 1234.5, np.array([10.0, 10.0, 10.0]))
    assert compute_s == pytest.approx([10, 20, 100])


def test_work_is_integrated_over_power_that_changes_in_mid_round():
    """From t = 200: 100 s at 0.5 do 50, the next 300 s at 0.1 do 30, the last 20 take 20 s at 1.0."""
    assert elapsed_s(stepped(0.5, 0.1, 1.0), CHANGES, 200.0, np.array([100.0])) == pytest.approx([420])


def test_sites_finish_each_in_their_own_time():
    power = stepped([1.0, 0.5], [0.5, 1.0])
    assert elapsed_s(power, CHANGES, 0.0, np.array([100.0, 300.0])) == pytest.approx([100, 450])


def test_a_round_may_start_exactly_on_a_step_and_end_exactly_on_one():
    assert elapsed_s(stepped(1.0, 0.5), CHANGES, 300.0, np.array([150.0])) == pytest.approx([300])
    assert elapsed_s(stepped(1.0, 0.5), CHANGES, 0.0, np.array([300.0])) == pytest.approx([300])


def test_a_site_without_power_waits_until_it_returns():
    assert elapsed_s(stepped(0.0, 0.0, 1.0), CHANGES, 0.0, np.array([10.0])) == pytest.approx([610])


def test_a_site_that_never_has_power_again_is_an_error_and_not_a_hang():
    with pytest.raises(InputError, match="no power"):
        elapsed_s(lambda t: np.array([1.0, 0.0]), never, 0.0, np.array([1.0, 1.0]))
    with pytest.raises(InputError, match="no power"):
        elapsed_s(stepped(0.0), partial(next_step_s, step_s=86400.0), 0.0, np.array([1.0]))


def test_no_work_takes_no_time_even_without_power():
    assert elapsed_s(lambda t: np.zeros(1), never, 0.0, np.zeros(1)) == [0.0]


@given(
    arrays(float, (20, 3), elements=st.floats(0.05, 1.0)),
    st.floats(0.0, 3000.0),
    arrays(float, 3, elements=st.floats(0.1, 2000.0)),
)
def test_the_integral_of_power_over_the_elapsed_time_is_the_work(table, start_s, work_s):
    power = stepped(*table)
    compute_s = elapsed_s(power, CHANGES, start_s, work_s)
    edges = np.arange(0, 60) * STEP_S + STEP_S
    for site, end_s in enumerate(start_s + compute_s):
        times = np.unique(np.concatenate([[start_s, end_s], edges[(edges > start_s) & (edges < end_s)]]))
        done = sum((b - a) * power((a + b) / 2)[site] for a, b in pairwise(times))
        assert done == pytest.approx(work_s[site], rel=1e-9)


def makespan_s(timing, throughput, next_change_s, start_s, work_s, total_work_s, comm_s):
    """Of a round in which everyone arrives."""
    compute_s = timing.elapsed_compute_s(throughput, next_change_s, start_s, work_s, total_work_s)
    return timing.makespan_s(compute_s, comm_s, np.full(len(comm_s), Status.ARRIVED))


def throughput(t):
    return np.array([1.0, 0.5])


C_S, L_S = np.array([10.0, 10.0]), np.array([30.0, 5.0])
W_S = 40.0
"""Two sites; all N together have 40 s of work."""


@pytest.mark.parametrize(
    ("clock", "expected_s"),
    [
        ("straggler", 40),  # max(10 + 30, 20 + 5)
        ("max-plus-max", 50),  # 20 + 30
        ("mean-power", 10 / 0.75 + 30),
        ("aggregate-throughput", 40 / 1.5 + 30),
    ],
)
def test_every_reading_of_the_clock(clock, expected_s):
    assert makespan_s(Timing(clock=clock), throughput, never, 0.0, C_S, W_S, L_S) == pytest.approx(expected_s)


def test_each_site_computes_at_its_own_pace():
    assert Timing().elapsed_compute_s(throughput, never, 0.0, C_S, W_S) == pytest.approx([10, 20])


def test_frozen_power_ignores_what_happens_inside_the_round():
    args = (stepped(0.5, 0.1, 1.0), CHANGES, 200.0, np.array([100.0]), 100.0, np.array([1.0]))
    assert makespan_s(Timing(power="frozen"), *args) == pytest.approx(201)
    assert makespan_s(Timing(power="integrated"), *args) == pytest.approx(421)


def test_more_sites_shorten_the_compute_part_under_the_aggregate_reading():
    shared = Timing(clock="aggregate-throughput")
    lengths_s = [
        makespan_s(shared, lambda _, k=k: np.ones(k), never, 0.0, np.full(k, 5.0), 100.0, np.zeros(k))
        for k in (1, 2, 10)
    ]
    assert lengths_s == pytest.approx([100, 50, 10])
