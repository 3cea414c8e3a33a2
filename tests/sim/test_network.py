from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from worlds import links, matrix
from worlds import world as build_world

from hpctrip.base.units import MILE_M
from hpctrip.sim.network import NETWORKS, Links, Network
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import History


@pytest.mark.parametrize("kind", sorted(NETWORKS))
def test_the_links_of_every_kind_take_more_time_for_more_bytes(kind, tmp_path):
    network = matrix(tmp_path, "0,0,1,1 1,0,9,2") if kind == "matrix" else NETWORKS[kind]()
    distance_m, columns = np.array([0.0, 100, 2000]) * MILE_M, {"region": np.array(["0", "1", "1"])}
    links = network.checked_links(distance_m, columns)
    small, large = (links.transfer_s(np.arange(3), 0.0, size, 0.0).together_s for size in (1e6, 1e9))
    assert small.shape == (3,) and (small >= 0).all() and (small < large).all() and np.isfinite(large).all()


@pytest.mark.parametrize(
    ("law", "miles", "expected_bps"),
    [
        ("capped-inverse", [0, 100, 1000, 2000, 10_000], [1e9, 1e9, 1e9, 0.5e9, 0.1e9]),
        ("inverse", [100, 1000, 2000, 10_000], [1e10, 1e9, 5e8, 1e8]),
        ("linear", [0, 5000, 10_000, 20_000], [1e9, 0.55e9, 1e8, 1e8]),
    ],
)
def test_the_bandwidth_follows_its_law(law, miles, expected_bps):
    bandwidth_bps = DistanceNetwork(bandwidth_law=law).bandwidth_bps(np.array(miles) * MILE_M)
    assert bandwidth_bps == pytest.approx(expected_bps)


@pytest.mark.parametrize(
    ("round_trip", "up_bytes", "expected_s"),
    [(False, 1.5e9, 12.01), (True, 1.5e9, 24.02), (True, 0.375e9, 3.01 + 12.01)],
)
def test_delay_is_propagation_plus_transfer_and_twice_that_for_a_round_trip(round_trip, up_bytes, expected_s):
    """Eq. 3: 2000 km at 2e8 m/s is 10 ms; 1.5 GB at 1 Gbit/s is 12 s. Only the way up is compressed."""
    network = DistanceNetwork(round_trip=round_trip, near_distance_m=1e7)
    assert alone_s(network, [2e6], up_bytes) == pytest.approx([expected_s])


def alone_s(network, distance_m, up_bytes=1.5e9):
    """Seconds of the transfers of sites at these distances, each by itself."""
    return network.links(np.array(distance_m), {}).transfer_s(slice(None), 0.0, up_bytes, 1.5e9).alone_s


def timed(network, by_themselves_s, up_bytes):
    """Communication times of a cohort of all sites, which alone would take so long."""
    num_sites = len(by_themselves_s)
    world = build_world(num_sites, network=network, sent_fraction=up_bytes / 1.5e9)
    world = replace(world, links=links(by_themselves_s, network))
    return world.times(1, 0.0, np.arange(num_sites), np.ones(num_sites)).flights.comm_s.tolist()


def test_the_aggregators_link_is_shared_by_the_cohort():
    """Three updates of 1.5 GB through 1 Gbit/s take 36 s: only the site that takes longer alone is not slowed."""
    network = DistanceNetwork(aggregator_bandwidth_bps=1e9)
    assert timed(network, [12.0, 20.0, 40.0], 1.5e9) == pytest.approx([36, 36, 40])
    assert timed(DistanceNetwork(), [12.0, 20.0], 1.5e9) == [12, 20]


def test_in_a_round_trip_the_aggregators_link_carries_updates_and_uncompressed_models():
    """Three updates of 0.5 GB and three models of 1.5 GB through 1 Gbit/s: 12 s + 36 s."""
    network = DistanceNetwork(aggregator_bandwidth_bps=1e9, round_trip=True)
    assert timed(network, [12.0, 50.0, 4.0], 0.5e9) == pytest.approx([48, 50, 48])


@given(st.sampled_from(["capped-inverse", "inverse", "linear"]), st.floats(1.0, 2e7), st.floats(1.0, 2e7))
def test_a_farther_site_never_has_a_shorter_delay(law, a, b):
    near_s, far_s = alone_s(DistanceNetwork(bandwidth_law=law), np.sort([a, b]))
    assert near_s <= far_s


def test_an_update_of_no_bytes_at_distance_0_takes_no_time():
    assert alone_s(DistanceNetwork(), [0.0], up_bytes=0.0) == [0.0]


class Congested(Links):
    """From the hundredth second on, a transfer takes ten times as long."""

    def transfer_s(self, sites, start_s, up_bytes, down_bytes):
        free = super().transfer_s(sites, start_s, up_bytes, down_bytes)
        return free._replace(alone_s=np.where(np.asarray(start_s) < 100, 1, 10) * free.alone_s)


class OwnNetwork(Network):
    def links(self, distance_m, columns):
        return Congested(np.ones(len(distance_m)), np.full(len(distance_m), 1e9), np.inf, False)


def test_a_transfer_of_another_network_takes_what_its_links_say_when_the_site_has_computed():
    world = build_world(3, network=OwnNetwork(update_bytes=0.0))
    times = world.times(1, 0.0, np.arange(3), np.array([50.0, 150.0, 99.0]))
    assert times.flights.comm_s.tolist() == [1, 10, 1] and times.makespan_s == 160
    assert [Profiler().view(world, t, History(), np.ones(3), 0).comm_s[0] for t in (0.0, 200.0)] == [1, 10]


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
        DistanceNetwork(**wrong)


@pytest.mark.parametrize("law", ["capped-inverse", "inverse"])
def test_the_far_bandwidth_restricts_no_law_that_does_not_use_it(law):
    slow = DistanceNetwork(bandwidth_law=law, near_bandwidth_bps=5e7)
    assert slow.bandwidth_bps(np.array([1000 * MILE_M])) == pytest.approx([5e7])
