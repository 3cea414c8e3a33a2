from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from worlds import world

from hpctrip.base.errors import InputError
from hpctrip.base.units import MILE_M
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.network import DistanceNetwork
from hpctrip.sim.power import Trace
from hpctrip.sim.sites import SITES, CsvSites, PowerLaw, Quota, UniformSites


@pytest.mark.parametrize("kind", ["powerlaw", "uniform", "quota"])
def test_a_law_draws_the_same_distances_for_the_same_seed_within_its_bounds(kind):
    law = SITES[kind](num_sites=1000)
    miles = law.distances_m(3) / MILE_M
    assert len(miles) == 1000 and miles.min() >= 100 and miles.max() <= 10_000
    assert (law.distances_m(3) == law.distances_m(3)).all()
    assert (law.distances_m(3) != law.distances_m(4)).any()


@pytest.mark.parametrize(("law", "share"), [(PowerLaw, 0.22), (UniformSites, 900 / 9900)])
def test_a_law_puts_its_share_of_the_sites_inside_1000_miles(law, share):
    miles = law(num_sites=100_000).distances_m(0) / MILE_M
    assert (miles <= 1000).mean() == pytest.approx(share, abs=0.005)


def test_a_quota_is_met_exactly_for_every_seed():
    for seed in range(20):
        assert (Quota().distances_m(seed) <= 1000 * MILE_M).sum() == 22


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValidationError, match="above max_distance_m"):
        PowerLaw(min_distance_m=10.0, max_distance_m=1.0)


def test_sites_are_read_from_a_csv_in_miles_or_metres(tmp_path):
    (tmp_path / "mi.csv").write_text("name,distance_mi\nOslo,100\nBergen,250.5\n")
    (tmp_path / "m.csv").write_text("distance_m\n1000\n")
    assert CsvSites(path=str(tmp_path / "mi.csv")).distances_m(0) == pytest.approx([160934.4, 250.5 * MILE_M])
    assert CsvSites(path=str(tmp_path / "m.csv")).distances_m(0) == pytest.approx([1000])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("distance_mi\n", "no rows"),
        ("latitude\n3\n", "has latitude; a distance on the globe needs both"),
        ("latitude,longitude\n91,0\n", "line 2: latitude = '91' is outside -90 to 90"),
        ("distance_mi\n3\n-1\n", "line 3: distance_mi = '-1'"),
        ("rtt_ms\n-10\n", "line 2: rtt_ms = '-10' is outside 0 to 1e"),
        ("name;rtt_ms\nOslo;10\n", "fields are separated by commas, not semicolons"),
        ("distance_mi\n\x00\xff", "sites.path"),
        ("distance_mi\n1e308\n", "line 2: distance_mi = '1e308'"),
        ("distance_mi,distance_m\n1,2\n", "has the columns distance_m and distance_mi"),
    ],
)
def test_a_wrong_csv_is_one_clear_line(tmp_path, text, complaint):
    path = tmp_path / "sites.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=complaint):
        CsvSites(path=str(path)).distances_m(0)


OWN = """name,distance_km,latitude,longitude,rtt_ms,bandwidth_mbps,gpus,group,grid
Oslo,500,,,20,400,50,north,NO
Quito,,0,-78.5,,,,south,EC
Bergen,,,,30,100,200,north,NO
Nowhere,,,,,,,,
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "sites.csv").write_text(OWN)
    return CsvSites(path=str(tmp_path / "sites.csv"), aggregator=[0.0, 11.5])


class Zones(type(SIGNALS["none"]())):
    site_column: str = "grid"


def test_sites_of_a_file_have_its_round_trip_times_bandwidths_and_gpus_and_the_laws_where_it_has_none(own):
    network, drawn_m = DistanceNetwork(update_bytes=1e9), PowerLaw(num_sites=4).distances_m(5)[3]
    made = world(own, network=network, carbon=Zones(), seed=5)
    # 90 degrees of the equator are a quarter of the Earth's circumference; 15 ms in fibre are 3000 km
    assert made.distance_m == pytest.approx([5e5, np.pi / 2 * 6_371_008.8, 3e6, drawn_m])
    law_bps, law_s = network.bandwidth_bps(made.distance_m), network.propagation_s(made.distance_m)
    assert made.links.bandwidth_bps.tolist() == [4e8, law_bps[1], 1e8, law_bps[3]]
    assert made.links.propagation_s == pytest.approx([0.010, law_s[1], 0.015, law_s[3]])
    assert made.hardware.work_s(np.full(4, 60), 1.0).tolist() == [120, 60, 30, 60]
    busy_w, _ = made.hardware.draw_w(np.ones(4))
    assert (busy_w / busy_w[1]).tolist() == [0.5, 1, 2, 1]
    assert made.site_columns["name"].tolist() == ["Oslo", "Quito", "Bergen", "Nowhere"]
    assert own.drawn() == [
        "distance on the globe: 1 of 4 sites",
        "distance by half the round-trip time in fibre: 1 of 4 sites",
        "distance drawn by the seed (synthetic): 1 of 4 sites",
        "propagation time by distance (network.propagation_m_per_s): 2 of 4 sites",
        "bandwidth by distance (network.bandwidth_law): 2 of 4 sites",
        "GPUs as throughput.num_gpus: 2 of 4 sites",
    ]


def test_a_column_that_nothing_reads_is_refused_with_the_nearest_that_is_read(own):
    with pytest.raises(InputError, match="has a column 'grid', which nothing reads"):
        world(own)
    Path(own.path).write_text("distance_km,bandwith_mbps\n5,100\n")
    with pytest.raises(
        InputError, match="'bandwith_mbps', which nothing reads; did you mean 'bandwidth_mbps'"
    ):
        world(own)


def test_a_site_follows_the_power_trace_that_it_names(own):
    Path(own.path).write_text('power_trace\ncellj_mvpp2\ncella_pdu7\n""\n')
    names = world(own, power=Trace()).supply.describe()["trace_domain"].tolist()
    assert names[:2] == ["cellj_mvpp2", "cella_pdu7"]
    assert names[2] == Trace().supply(3, 0).describe()["trace_domain"][2]
    Path(own.path).write_text("power_trace\ncella_pdu77\n")
    with pytest.raises(InputError, match="names 'cella_pdu77', of which there is no power; did you mean"):
        world(own, power=Trace())
