"""Links between regions: what transfers and synchronisations over them take, and tables that are refused."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import matrix

from hpctrip.base.errors import InputError
from hpctrip.runner.experiment import read_input
from hpctrip.sim.matrix import MOST_EXACT, Matrix, best_rings

ROWS = "a,a,2,8 a,b,100,4 b,a,60,2 b,b,0,1"
"""Links within and between two regions, which differ by direction."""
GB = 1e9


def together_s(folder, regions, rows=ROWS, down_bytes=GB, **keys):
    """Communication times of sites in these regions that all send 1 GB at once."""
    links = matrix(folder, rows, **{"aggregator": "a"} | keys).links(
        np.zeros(len(regions)), {"region": np.array([*regions])}
    )
    return links.transfer_s(np.arange(len(regions)), 0.0, GB, down_bytes).together_s


@pytest.mark.parametrize(
    ("keys", "expected_s"),
    [
        ({}, [1.001, 4.03, 4.03]),  # 8 Gbit by 8 and by 2 Gbit/s, and half the round trip of that direction
        ({"round_trip": True}, [2.002, 6.08, 6.08]),  # back to b by 4 Gbit/s
        ({"shared_uplinks": True}, [1.001, 8, 8]),  # two updates share the 2 Gbit/s from b; a is at home
        ({"aggregator_bandwidth_bps": 4e9}, [6, 6, 6]),
        ({"exchange": "two-level"}, [1.001, 12.03, 12.03]),  # b: 1 Gbit/s to its server, then as a star
        ({"exchange": "two-level", "round_trip": True}, [2.002, 22.08, 22.08]),
        # a -> b -> b -> a: 1 Gbit/s is the slowest, 0.08 s the latency around; 4/3 of both
        ({"exchange": "ring"}, [4 / 3 * 8.08] * 3),
    ],
)
def test_a_transfer_takes_what_its_links_say(tmp_path, keys, expected_s):
    assert together_s(tmp_path, "abb", **keys) == pytest.approx(expected_s)


def test_a_table_whose_rows_hold_both_ways_has_half_of_them(tmp_path):
    both = together_s(tmp_path, "ab", "a,b,100,4 a,a,2,8", symmetric=True, round_trip=True)
    assert both == pytest.approx([2.002, 4.1])


@pytest.mark.parametrize(("regions", "expected_s"), [("a", 0.0), ("aa", 1.002), ("ab", 4.08)])
def test_one_site_has_nothing_to_exchange_and_two_send_all_once_both_ways(tmp_path, regions, expected_s):
    assert together_s(tmp_path, regions, exchange="ring")[0] == pytest.approx(expected_s)


def random_matrix(num_regions, seed):
    rng = np.random.default_rng(seed)
    shape = num_regions, num_regions
    return Matrix(
        [*map(str, range(num_regions))], rng.uniform(0, 0.1, shape), rng.integers(1, 9, shape) * 1e8
    )


@settings(max_examples=20)
@given(num_regions=st.integers(2, 6), seed=st.integers(0, 1000))
def test_the_ring_is_the_best_of_all_rings_and_runs_one_way(num_regions, seed):
    table = random_matrix(num_regions, seed)

    def hops(ring):
        return [(one, other) for one, other in zip(ring, (*ring[1:], ring[0]), strict=True)]

    rings = [
        (
            min(table.bandwidth_bps[hop] for hop in hops(ring)),
            -sum(table.latency_s[hop] for hop in hops(ring)),
        )
        for ring in permutations(range(num_regions))
    ]
    slowest_bps, latency_s = best_rings(table, tuple(range(num_regions)))
    assert (slowest_bps[-1], -latency_s[-1]) == pytest.approx(max(rings))


def test_a_ring_of_many_regions_is_a_ring_though_there_may_be_a_better_one():
    """Its slowest link is no faster than what every region can have: its fastest way in and its fastest way out."""
    for seed in range(5):
        table = random_matrix(30, seed)
        slowest_bps, latency_s = best_rings(table, tuple(range(30)))
        exact = best_rings(table, tuple(range(MOST_EXACT)))
        assert slowest_bps[:MOST_EXACT] == pytest.approx(exact[0])
        others = np.where(np.eye(30), 0, table.bandwidth_bps)
        assert 3e8 <= slowest_bps[-1] <= min(others.max(axis=0).min(), others.max(axis=1).min())
        assert (latency_s > 0).all()


SITES = "name,region\nn1,a\nn2,b\nn3,b\n"


def checked(folder, rows, *lines, header="from,to,rtt_ms,bandwidth_gbps", sites=SITES):
    """What `check` does with an input of three sites and this table of links."""
    (folder / "sites.csv").write_text(sites)
    (folder / "links.csv").write_text("\n".join((header, *rows.split())))
    own = [
        f'sites={{kind="csv", path="{folder / "sites.csv"}"}}' if sites else "sites={kind='uniform'}",
        f'network={{kind="matrix", path="{folder / "links.csv"}", aggregator="a"}}',
        "policy.kind=all",
    ]
    return read_input([], [*own, *lines]).experiment.check()


@pytest.mark.parametrize(
    ("rows", "lines", "message"),
    [
        ("a,a,2,8 b,a,60,-2", (), r"links.csv', line 3: bandwidth_gbps = '-2' is outside 1e-09 to 1e\+09"),
        ("a,a,2,8 b,a,-60,2", (), r"line 3: rtt_ms = '-60' is outside 0 to 1e\+09"),
        ("a,a,2,8 b,a,,2", (), "line 3: rtt_ms = '' is missing"),
        (
            "a,a,2,8 a,b,60,2",
            (),
            "has no row from 'b' to 'a', which is needed; add it, or set network.symmetric",
        ),
        ("a,a,2,8 c,a,60,2", (), r"has no region 'b', which is that of site 1 \(n2\); known: a, c"),
        ("b,b,2,8 b,c,60,2", (), "network.aggregator = 'a': is no region of .*links.csv; known: b, c"),
        (
            "a,a,2,8 b,a,6,2 b,a,7,3",
            (),
            "line 4: from = 'b' begins a link that another row has, too; keep one",
        ),
        (ROWS, ("network.symmetric=true",), "line 3: .* or set network.symmetric = false"),
        (
            "a,a,2,8 b,a,6,2",
            ('network.exchange="ring"',),
            "has no row from 'b' to 'b', which is needed; add it",
        ),
        ("b,b,2,8 b,a,6,2", ('network.exchange="ring"',), "has no row from 'a' to 'b', which is needed"),
        ("a,a,2,8 b,a,6,2", ('network.exchange="two-level"',), "has no row from 'b' to 'b'"),
        (ROWS, ('network.exchange="ring"', "faults.deadline_s=9"), 'exchange = "ring": waits for all sites'),
        (
            ROWS,
            ('network.exchange="ring"', "rounds.kind=quorum"),
            'use rounds.kind = "synchronous"',
        ),
        (ROWS, ('network.exchange="ring"', "network.shared_uplinks=true"), "leave out shared_uplinks"),
        (ROWS, ("network.site_column=state",), "has no column 'state'"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path, rows, lines, message):
    with pytest.raises(InputError, match=message) as refused:
        checked(tmp_path, rows, *lines)
    assert "\n" not in str(refused.value).removeprefix("1 fault")


def test_a_table_without_a_quantity_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no column 'bandwidth_gbps'"):
        checked(tmp_path, "a,a,2 b,a,60", header="from,to,rtt_s")


def test_a_ring_needs_no_link_that_it_does_not_use(tmp_path):
    ring = checked(tmp_path, "a,b,0,8 b,a,0,4 b,b,0,2", 'network.exchange="ring"').world.links
    assert ring.bandwidth_bps.tolist() == [8e9, 4e9, 4e9]


def test_sites_have_no_links_besides_the_table(tmp_path):
    with pytest.raises(InputError, match=r"has the links of the sites, and their file .*bandwidth_bps"):
        checked(tmp_path, ROWS, sites="region,bandwidth_gbps\na,1\n")


def test_sites_without_a_file_are_in_no_region(tmp_path):
    with pytest.raises(InputError, match="sites of kind 'uniform' have no column 'region'"):
        checked(tmp_path, ROWS, sites="")


def test_every_site_may_be_a_region_and_a_pooled_site_is_in_none(tmp_path):
    of_sites = checked(tmp_path, "n1,a,2,8 n2,a,4,2 n3,a,8,1", 'network.site_column="name"')
    assert of_sites.world.links.bandwidth_bps.tolist() == [8e9, 2e9, 1e9]
    assert len(checked(tmp_path, ROWS, "policy.kind=centralized").world) == 1
