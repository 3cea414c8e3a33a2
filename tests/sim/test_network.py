import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from worlds import world as build_world

from hpctrip.base.units import MILE_M
from hpctrip.sim.network import Network
from hpctrip.sim.world import round_times


@pytest.mark.parametrize(
    ("law", "miles", "expected_bps"),
    [
        ("capped-inverse", [0, 100, 1000, 2000, 10_000], [1e9, 1e9, 1e9, 0.5e9, 0.1e9]),
        ("inverse", [100, 1000, 2000, 10_000], [1e10, 1e9, 5e8, 1e8]),
        ("linear", [0, 5000, 10_000, 20_000], [1e9, 0.55e9, 1e8, 1e8]),
    ],
)
def test_the_bandwidth_follows_its_law(law, miles, expected_bps):
    bandwidth_bps = Network(bandwidth_law=law).bandwidth_bps(np.array(miles) * MILE_M)
    assert bandwidth_bps == pytest.approx(expected_bps)


@pytest.mark.parametrize(
    ("round_trip", "up_bytes", "expected_s"),
    [(False, 1.5e9, 12.01), (True, 1.5e9, 24.02), (True, 0.375e9, 3.01 + 12.01)],
)
def test_delay_is_propagation_plus_transfer_and_twice_that_for_a_round_trip(round_trip, up_bytes, expected_s):
    """Eq. 3: 2000 km at 2e8 m/s is 10 ms; 1.5 GB at 1 Gbit/s is 12 s. Only the way up is compressed."""
    network = Network(round_trip=round_trip)
    propagation_s = network.propagation_s(np.array([2e6]))
    delay_s = network.comm_s(propagation_s, np.array([1e9]), up_bytes, 1.5e9)
    assert delay_s == pytest.approx([expected_s])


def timed(network, alone_s, up_bytes):
    """Communication times of a cohort of all sites, which alone would take `alone_s`."""
    alone_s = np.array(alone_s)
    world = build_world(len(alone_s), network=network, sent_fraction=up_bytes / 1.5e9)
    world = dataclasses.replace(world, comm_s=alone_s)
    return round_times(world, 1, 0.0, np.arange(len(alone_s)), np.ones(len(alone_s)))["comm_s"].tolist()


def test_the_aggregators_link_is_shared_by_the_cohort():
    """Three updates of 1.5 GB through 1 Gbit/s take 36 s: only the site that takes longer alone is not slowed."""
    network = Network(aggregator_bandwidth_bps=1e9)
    assert network.link_s(1.5e9, 1.5e9) == pytest.approx(12)
    assert timed(network, [12.0, 20.0, 40.0], 1.5e9) == pytest.approx([36, 36, 40])
    assert timed(Network(), [12.0, 20.0], 1.5e9) == [12, 20]


def test_in_a_round_trip_the_aggregators_link_carries_updates_and_uncompressed_models():
    """Three updates of 0.5 GB and three models of 1.5 GB through 1 Gbit/s: 12 s + 36 s."""
    network = Network(aggregator_bandwidth_bps=1e9, round_trip=True)
    assert timed(network, [12.0, 50.0, 4.0], 0.5e9) == pytest.approx([48, 50, 48])


@given(st.sampled_from(["capped-inverse", "inverse", "linear"]), st.floats(1.0, 2e7), st.floats(1.0, 2e7))
def test_a_farther_site_never_has_a_shorter_delay(law, a, b):
    network = Network(bandwidth_law=law)
    distance = np.sort(np.array([a, b]))
    delay = network.comm_s(network.propagation_s(distance), network.bandwidth_bps(distance), 1.5e9, 1.5e9)
    assert delay[0] <= delay[1]


def test_an_update_of_no_bytes_at_distance_0_takes_no_time():
    network = Network(update_bytes=0)
    assert network.comm_s(np.zeros(1), network.bandwidth_bps(np.zeros(1)), 0.0, 0.0) == [0.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"update_bytes": -1},
        {"update_bytes": "some"},
        {"near_bandwidth_bps": 0},
        {"bandwidth_law": "linear", "far_bandwidth_bps": 2e9},
    ],
)
def test_impossible_networks_are_refused(wrong):
    with pytest.raises(ValidationError):
        Network(**wrong)


@pytest.mark.parametrize("law", ["capped-inverse", "inverse"])
def test_the_far_bandwidth_restricts_no_law_that_does_not_use_it(law):
    slow = Network(bandwidth_law=law, near_bandwidth_bps=5e7)
    assert slow.bandwidth_bps(np.array([1000 * MILE_M])) == pytest.approx([5e7])
