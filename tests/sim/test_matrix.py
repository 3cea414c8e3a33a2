"""Links between regions: what transfers and synchronisations over them take, and tables that are refused."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import matrix

from hpctrip.base.errors import InputError
from hpctrip.runner.experiment import read_input
from hpctrip.sim.link_table import Matrix
from hpctrip.sim.matrix import MOST_EXACT, MatrixNetwork, best_rings

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


DATED = """time_s,from,to,rtt_ms,bandwidth_gbps
0,b,a,100,1
10,b,a,200,4
20,b,a,200,2
0,a,b,0,8
0,a,a,2,8
"""
"""Links whose bandwidth changes every 10 s, and begins again after 30 s; those of one row are always the same."""


def dated_links(folder, table=DATED, regions="b", **keys):
    """Links of sites in these regions by a table with times."""
    (folder / "dated.csv").write_text(table)
    network = MatrixNetwork(path=str(folder / "dated.csv"), **{"aggregator": "a"} | keys)
    return network.links(np.zeros(len(regions)), {"region": np.array([*regions])})


@pytest.mark.parametrize(
    ("start_s", "expected_s"),
    [
        (0.0, 8.05),  # 8 Gbit within a step of 1 Gbit/s
        (5.0, 5 + 3 / 4 + 0.05),  # 5 Gbit, then 3 by 4 Gbit/s; the latency is that of the start
        (19.0, 1 + 4 / 2 + 0.1),
        (29.0, 1 + 6 / 1 + 0.1),  # the series begins again
        (95.0, 5 + 3 / 4 + 0.05),
    ],
)
def test_a_transfer_goes_on_with_the_bandwidth_of_the_moment(tmp_path, start_s, expected_s):
    for keys in {}, {"exchange": "ring"}:
        links = dated_links(tmp_path, regions="ab", **keys)
        assert links.transfer_s(np.arange(2), start_s, GB, GB).alone_s[1] == pytest.approx(
            expected_s, rel=1e-12
        )
    starts_s = np.array([start_s, 0.0, start_s + 1000])
    several = dated_links(tmp_path, regions="bbb").transfer_s(np.arange(3), starts_s, GB, GB).alone_s
    assert several[:2] == pytest.approx([expected_s, 8.05], rel=1e-12)


def test_rows_that_hold_both_ways_change_both(tmp_path):
    """From 5 s on: there as in one direction, and back from 10.8 s on by 4 Gbit/s, with 0.1 s of latency."""
    links = dated_links(tmp_path, DATED.replace("0,a,b,0,8\n", ""), symmetric=True, round_trip=True)
    assert links.transfer_s([0], 5.0, GB, GB).alone_s == pytest.approx([5.8 + 2.1], rel=1e-12)


def test_a_shared_uplink_carries_all_of_its_region_with_the_bandwidth_of_the_moment(tmp_path):
    """Two times 8 Gbit from 5 s on: 5 by 1 Gbit/s, 11 by 4; and back by 8 Gbit/s, which shares the time of the way."""
    one_way = dated_links(tmp_path, regions="bb", shared_uplinks=True).transfer_s(np.arange(2), 5.0, GB, GB)
    assert one_way.together_s == pytest.approx([7.75] * 2, rel=1e-12)
    assert one_way.uplink_s == pytest.approx([5.75] * 2, rel=1e-12)
    both = dated_links(tmp_path, regions="bb", shared_uplinks=True, round_trip=True)
    there_s = 5 + (1 - 5 / 18) * 6  # 18 s by the first bandwidths, 6 by the second
    assert both.transfer_s(np.arange(2), 5.0, GB, GB).together_s == pytest.approx([there_s] * 2, rel=1e-12)
    alone_s = (
        dated_links(tmp_path, regions="bb", round_trip=True).transfer_s(np.arange(2), 5.0, GB, GB).alone_s
    )
    assert alone_s == pytest.approx([5.8 + 1] * 2, rel=1e-12)


def test_links_of_equal_rows_have_the_bits_of_links_without_times(tmp_path):
    rows = "\n".join(f"{time_s},b,a,100,0.7" for time_s in range(0, 50, 10))
    dated = dated_links(tmp_path, f"time_s,from,to,rtt_ms,bandwidth_gbps\n{rows}\n0,a,a,2,8")
    plain = matrix(tmp_path, "b,a,100,0.7 a,a,2,8", aggregator="a").links(
        np.zeros(1), {"region": np.array(["b"])}
    )
    for start_s in np.linspace(0, 45, 20):
        taken_s = [links.transfer_s([0], start_s, GB / 3, GB).alone_s for links in (dated, plain)]
        assert taken_s[0] == taken_s[1]


def test_rows_in_any_order_and_equal_ones_make_the_same_links(tmp_path):
    head, *rows = DATED.splitlines()
    mixed = "\n".join([head, *rows[::-1], "15,b,a,200,4"])
    for start_s in 0.0, 14.0, 21.0:
        taken_s = [dated_links(tmp_path, t).transfer_s([0], start_s, GB, GB).alone_s for t in (DATED, mixed)]
        assert taken_s[0] == taken_s[1]


def test_time_begins_where_start_says(tmp_path):
    table = DATED.replace("time_s", "time").replace("\n0,", "\n2026-11-29 00:00,")
    table = table.replace("\n10,", "\n2026-11-29 00:00:10,").replace("\n20,", "\n2026-11-29 00:00:20,")
    (tmp_path / "dated.csv").write_text(table)
    (tmp_path / "sites.csv").write_text("region\nb\n")
    network = (
        f'network={{kind="matrix", path="{tmp_path / "dated.csv"}", aggregator="a", update_bytes="1 GB"}}'
    )
    lines = [f'sites={{kind="csv", path="{tmp_path / "sites.csv"}"}}', network, "policy.kind=all"]

    def begun(*more):
        return read_input([], [*lines, *more]).experiment.check().world

    assert (
        begun().transfers(5.0).alone_s == begun('network.start="2026-11-29 00:00:05"').transfers(0.0).alone_s
    )
    late = begun('network.start="2026-11-29 01:00:19+01:00"')
    assert late.transfers(0.0).alone_s == pytest.approx([3.1]) and late.links.bandwidth_bps == 4e9
    assert late.start == ["network 2026-11-29T00:00:19 UTC, data until 2026-11-29T00:00:30"]
    with pytest.raises(InputError, match=r"network\.start = .*: lies outside the data of network"):
        begun('network.start="2026-11-30"')


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
        (ROWS, ('network.start="2026-11-29"',), "network.start = .*: needs a table with dates"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path, rows, lines, message):
    with pytest.raises(InputError, match=message) as refused:
        checked(tmp_path, rows, *lines)
    assert "\n" not in str(refused.value).removeprefix("1 fault")


@pytest.mark.parametrize(
    ("rows", "lines", "message"),
    [
        ("0,b,a,1,-2", (), "line 2: bandwidth_gbps = '-2' is outside"),
        ("noon,b,a,1,2 0,b,a,1,2", (), "line 2: time_s = 'noon' is not a finite number"),
        (
            "0,b,a,1,2 0,b,a,1,3 9,b,a,1,4",
            (),
            "line 3: holds .* of bandwidth_bps from b to a at 0 s; keep one of",
        ),
        (
            "0,b,a,1,2 60,b,a,1,2 120,b,a,1,2 90000,b,a,1,2",
            (),
            "has no value of .* from b to a for .* longest_gap_s",
        ),
        (
            "0,b,a,1,2 60,b,a,1,2 0,a,b,1,2",
            ("network.symmetric=true",),
            "begins a link that another row has, too",
        ),
        (
            "0,b,a,1,2 60,b,a,1,2",
            ('network.start="2026-11-29"',),
            "network.start = .*: needs a table with dates",
        ),
    ],
)
def test_a_wrong_table_with_times_is_refused_in_one_line(tmp_path, rows, lines, message):
    header = "time_s,from,to,rtt_ms,bandwidth_gbps"
    with pytest.raises(InputError, match=message):
        checked(tmp_path, f"{rows} 0,a,a,1,9", *lines, header=header)


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
