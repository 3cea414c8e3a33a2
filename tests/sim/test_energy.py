"""Energy, carbon and cost of a round: bills checked by hand, and energy as the integral of the power drawn."""

import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Steps, faults, sites_at
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.base.series import Signal
from hpctrip.base.units import parse
from hpctrip.sim.bill import bill
from hpctrip.sim.energy import Accounts
from hpctrip.sim.grid import SIGNALS, GridSignal, SignalModel
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.rounds import Status
from hpctrip.sim.step import State
from hpctrip.sim.timing import Timing

SITE = {"num_gpus": 10, "gpu_power_w": 100.0, "idle_w": 20.0, "pue": 2.0}
"""2 kW at full power, of which 400 W stay while all GPUs wait."""


ONE = Steps(fractions=[[1]])
"""One site at full power."""


class Zones(SignalModel):
    """One zone a site: values over steps of so many seconds, again and again."""

    values: list[list[float]]
    step_s: float

    def signal(self, table, sites, num_sites, seed):
        series = [
            Signal(np.arange(len(v)) * self.step_s, np.array(v), len(v) * self.step_s) for v in self.values
        ]
        return GridSignal(list(map(str, range(num_sites))), series, np.arange(num_sites), True)


NETWORK = DistanceNetwork(update_bytes=2e9, propagation_m_per_s=1e6, near_bandwidth_bps=1e30)
"""Sending takes no time, though its bytes cost energy."""


def world(power=None, throughput="linear", timing=None, accounts=None, tmp_path=None, outages="", **others):
    """Sites 1 s of propagation away that send nothing; 1 s of work a sample."""
    keys = {"deadline_s": 100.0} if outages else {}
    return build_world(
        len(power.fractions) if power else 2,
        1e6,
        network=NETWORK,
        power=power,
        throughput=THROUGHPUT_MODELS[throughput](**SITE),
        timing=timing,
        accounts=accounts or Accounts(network_j_per_gb=0.0),
        faults=faults(tmp_path, outages, **keys | others.pop("faults", {})),
        **others,
    )


def billed(world, samples, start_s=0.0):
    """The times and the bill of a round of all sites, which have so many samples."""
    cohort = np.arange(len(world))
    times = world.times(1, start_s, cohort, np.array(samples, dtype=float))
    costs, _ = bill(world, times)
    energy_j = sum(costs[name] for name in ("compute_energy_j", "wait_energy_j", "comm_energy_j"))
    return SimpleNamespace(**vars(times), **costs, energy_j=energy_j)


def test_a_site_computes_and_then_waits_for_the_straggler():
    """10 s at 2 kW, then 30 s + 1 s of the other's transfer at 400 W; the straggler waits for its transfer alone."""
    spent = billed(world(), [10, 40])
    assert spent.makespan_s == 41
    assert spent.compute_energy_j.tolist() == [20_000, 80_000]
    assert spent.wait_energy_j.tolist() == [31 * 400, 400]
    assert spent.energy_j.tolist() == [32_400, 80_400]
    assert np.isnan(spent.carbon_g).all() and np.isnan(spent.cost).all()


def test_half_the_power_computes_twice_as_long_and_half_the_gpus_wait():
    half = Steps(fractions=[[0.5], [0.5]])
    spent = billed(world(half), [10, 40])
    assert spent.compute_energy_j.tolist() == [20_000, 80_000]
    assert spent.wait_energy_j.tolist() == [61 * 200, 200]


def test_a_released_site_waits_for_its_own_transfer_alone():
    released = Accounts(waiting="released", network_j_per_gb=0.0)
    spent = billed(world(accounts=released), [10, 40])
    assert spent.wait_energy_j.tolist() == [400, 400]


def test_the_network_takes_its_joules_by_the_gigabyte():
    spent = billed(world(accounts=Accounts(network_j_per_gb=100.0)), [10, 40])
    assert spent.comm_energy_j.tolist() == [200, 200]
    assert spent.energy_j.tolist() == [32_600, 80_600]


def test_power_that_changes_inside_the_round_changes_what_is_drawn():
    """15 s of work: 10 s at full power, 10 s at half, and then full again after the end."""
    spent = billed(world(Steps(fractions=[[1, 0.5, 1]], step_s=10.0)), [15])
    assert spent.makespan_s == 21
    assert spent.compute_energy_j.tolist() == [10 * 2000 + 10 * 1000]
    assert spent.wait_energy_j.tolist() == [400]  # in the third step, whose power is full again


def test_carbon_and_price_follow_the_signal_at_the_site():
    """3.6 kJ are a watt-hour. The first site computes 10 s at 100 g and 10 s at 200 g, and waits one at 100 g again."""
    signal = Zones(values=[[100, 200], [0, 0]], step_s=10.0)
    spent = billed(world(carbon=signal, price=signal), [20, 20])
    wh = np.array([10 * 2000, 10 * 2000, 400]) / 3600
    assert spent.carbon_g == pytest.approx([wh @ [0.1, 0.2, 0.1], 0])
    assert spent.cost == pytest.approx(spent.carbon_g)


def test_the_networks_energy_counts_when_the_transfer_begins():
    signal = Zones(values=[[100, 200, 1000]], step_s=10.0)
    sends = Accounts(network_j_per_gb=1.8e6)
    quiet = world(ONE, carbon=signal)
    loud = world(ONE, carbon=signal, accounts=sends)
    for samples, intensity in ((5, 100), (10, 200), (19.5, 200), (20, 1000)):
        before, after = billed(quiet, [samples]), billed(loud, [samples])
        assert (after.carbon_g - before.carbon_g).tolist() == pytest.approx([intensity])  # 3.6 MJ


def test_who_was_out_draws_nothing_and_who_is_late_draws_until_the_deadline(tmp_path):
    three = Steps(fractions=[[1], [1], [1]])
    late = world(three, tmp_path=tmp_path, outages="0,0,1000\n", faults={"deadline_s": 30.0})
    spent = billed(late, [10, 100, 10])
    assert spent.flights.status.tolist() == [Status.OUT, Status.LATE, Status.ARRIVED]
    assert spent.compute_energy_j.tolist() == [0, 60_000, 20_000]
    assert spent.wait_energy_j.tolist() == [0, 0, 20 * 400]
    assert spent.comm_energy_j.tolist() == [0, 0, 0]


def test_a_site_that_goes_out_while_it_computes_draws_nothing_until_it_returns(tmp_path):
    spent = billed(world(ONE, tmp_path=tmp_path, outages="0,4,14\n"), [10])
    assert spent.flights.compute_s.tolist() == [20]
    assert spent.compute_energy_j.tolist() == [20_000]


def test_a_round_that_is_timed_by_the_power_at_its_start_is_billed_by_it():
    falling = Steps(fractions=[[1, 0.1]], step_s=5.0)
    frozen = Timing(seconds_per_sample=1.0, power="frozen")
    spent = billed(world(falling, timing=frozen), [10])
    assert spent.makespan_s == 11
    assert (spent.compute_energy_j.tolist(), spent.wait_energy_j.tolist()) == ([20_000], [400])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.05, 1), min_size=6, max_size=6), min_size=1, max_size=4),
    st.sampled_from(["linear", "gpus", "capped", "curve", "clocks"]),
    st.sampled_from(["straggler", "max-plus-max", "mean-power", "aggregate-throughput"]),
    st.floats(1, 50),
    st.floats(0, 1000),
)
def test_the_energy_of_a_round_is_the_integral_of_the_power_drawn(fractions, kind, clock, step_s, start_s):
    """By cutting the round at every change of power, and between, and adding up trapezoids that are rectangles."""
    keys = {"num_gpus": 50, "pue": 1.3} | ({"idle_w": 30.0} if kind != "clocks" else {})
    sites = build_world(
        sites_at(len(fractions), 1e6, 9e6),
        network=DistanceNetwork(update_bytes=0.0, propagation_m_per_s=1e6),
        power=Steps(fractions=[[max(f, 0.1) for f in row] for row in fractions], step_s=step_s),
        throughput=THROUGHPUT_MODELS[kind](**keys).resolve(),
        timing=Timing(seconds_per_sample=1.0, clock=clock),
    )
    spent = billed(sites, np.linspace(10, 60, len(sites)), start_s)
    end_s = start_s + spent.makespan_s
    changes_s = np.arange(start_s // step_s, end_s // step_s + 2) * step_s
    edges = np.concatenate([[start_s, end_s], start_s + spent.flights.compute_s, changes_s])
    edges = np.unique(np.clip(edges, start_s, end_s))
    joules = np.zeros((2, len(sites)))
    for left_s, right_s in pairwise(edges):
        middle_s = (left_s + right_s) / 2
        power = sites.power_fraction(middle_s)
        computing = middle_s < start_s + spent.flights.compute_s
        joules[0] += np.where(computing, sites.hardware.draw_w(power)[0], 0) * (right_s - left_s)
        joules[1] += np.where(computing, 0, sites.hardware.draw_w(power)[1]) * (right_s - left_s)
    assert spent.compute_energy_j == pytest.approx(joules[0], rel=1e-9)
    assert spent.wait_energy_j == pytest.approx(joules[1], rel=1e-9, abs=1e-6)


def test_the_row_holds_the_bill_of_every_site_and_their_sums(simulation):
    sites = world(carbon=SIGNALS["constant"](per_kwh=360.0), price=SIGNALS["constant"](per_kwh=3.6))
    rounds = simulation(sites, num_visits=np.array([10, 40]))
    state, row = rounds.finish(rounds.begin(State()), Outcome.assumed(np.zeros(2)))
    assert (row.compute_energy_j, row.wait_energy_j, row.comm_energy_j) == (100_000, 12_800, 0)
    assert row.energy_j == 112_800
    assert row.carbon_g == pytest.approx(11.28) and row.cost == pytest.approx(0.1128)
    assert row.cohort.compute_energy_j.tolist() == [20_000, 80_000]
    state, _ = rounds.finish(rounds.begin(state), Outcome.assumed(np.zeros(2)))
    assert state.history.total("energy_j") == 225_600


@pytest.mark.parametrize(("text", "joules"), [("500 kWh", 1.8e9), ("1 MWh", 3.6e9), ("3 GJ", 3e9)])
def test_energy_may_be_given_in_the_units_of_a_bill(text, joules):
    assert parse(text, "joules") == joules
    assert parse("20 kg", "grams") == 20_000


@pytest.mark.parametrize("table", ["power", "carbon", "price"])
def test_what_changes_too_often_for_a_round_is_named_and_refused(table, monkeypatch):
    monkeypatch.setattr("hpctrip.sim.bill.MOST_STEPS", 1000)
    often = Steps(fractions=[[1]], step_s=1e-2) if table == "power" else Zones(values=[[1, 2]], step_s=1e-2)
    rarely = {"carbon": SIGNALS["daily"](mean=1.0)} if table == "price" else {}
    slow = world(**{"power": ONE, table: often} | rarely)
    with pytest.raises(
        InputError, match=f"^{table}: changes more than 1,000 times in the round that starts at 0"
    ):
        billed(slow, [100])
    assert math.isfinite(billed(slow, [1]).energy_j[0])
