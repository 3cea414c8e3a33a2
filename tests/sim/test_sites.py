from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from worlds import world

from hpctrip.base.errors import InputError
from hpctrip.base.units import MILE_M
from hpctrip.config.inputs import resolved
from hpctrip.sim import plausible
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS, Hardware
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.power.traces import Trace
from hpctrip.sim.sites import SITES, CsvSites, PowerLaw, Quota, UniformSites
from hpctrip.sim.timing import Timing


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
        "round-trip time as [network] says: 2 of 4 sites",
        "bandwidth as [network] says: 2 of 4 sites",
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


PLANNED = """name,distance_km,gpus,gpu,seconds_per_sample,contract_mw,price_per_mwh,carbon_g_per_kwh,operator,floors
Oslo,5,200,V100,0.5,0.05,42,25,us,3
Rome,5,100,A40,,,108,300,them,
Bonn,5,100,,,,,,us,2
"""


@pytest.fixture
def planned(own):
    """`planned(**tables)`: a world of three sites with GPUs, speeds, contracts, prices and facts of their own."""
    Path(own.path).write_text(PLANNED)
    sites = CsvSites(path=own.path, facts=["operator", "floors"])
    usual = {
        "throughput": THROUGHPUT_MODELS["capped"](gpu="V100").resolve(),
        "carbon": SIGNALS["constant"](per_kwh=100.0),
        "price": SIGNALS["constant"](per_kwh=0.5),
    }
    return lambda **tables: world(sites, **usual | tables)


def test_sites_have_the_gpus_speeds_prices_and_carbon_of_their_columns(planned):
    made, power = planned(), np.full(3, 0.5)
    curves = [THROUGHPUT_MODELS["capped"](gpu=gpu).fraction(power)[0] for gpu in ("V100", "A40", "V100")]
    # Oslo's contract of 50 kW is less than the 88 kW that its 200 GPUs draw
    curves[0] = THROUGHPUT_MODELS["capped"](gpu="V100").fraction(np.array([0.5 * 50 / 88]))[0]
    assert made.hardware.throughput(power) == pytest.approx(curves)
    assert made.hardware.throughput(power[:1], np.array([1])) == pytest.approx(curves[1:2])
    assert made.hardware.draw_w(power)[0] == pytest.approx([25e3, 22e3, 22e3])
    assert made.hardware.site_w == pytest.approx([50e3, 44e3, 44e3])
    assert made.hardware.work_s(np.full(3, 60), 1.0) == pytest.approx([30, 60, 60])
    assert made.signals["price"].at(1e9).tolist() == [0.042, 0.108, 0.5]
    assert made.signals["carbon"].at(0.0).tolist() == [25, 300, 100]
    assert made.site_columns["fact_operator"].tolist() == ["us", "them", "us"]
    assert made.site_columns["fact_floors"].tolist()[::2] == [3, 2]  # numbers, as far as they are known


def test_more_contract_than_the_gpus_need_is_of_no_use(planned, own):
    Path(own.path).write_text("distance_km,gpus,contract_mw\n5,100,0.088\n")
    sites = CsvSites(path=own.path)
    for kind in ("linear", "capped", "gpus", "curve"):
        hardware = world(sites, throughput=THROUGHPUT_MODELS[kind](gpu_power_w=400.0).resolve()).hardware
        whole = hardware.full_power_w[0] / hardware.site_w[0]
        for power in (whole, 1.0):
            assert hardware.throughput(np.array([power])) == pytest.approx([1.0])
            assert hardware.draw_w(np.array([power]))[0] == pytest.approx(hardware.full_power_w)


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"throughput": THROUGHPUT_MODELS["linear"]()}, 'knows no such GPU by its name; use "capped"'),
        ({"throughput": THROUGHPUT_MODELS["curve"](gpu="A100")}, "gpu = 'V100'"),
        ({"price": SIGNALS["none"]()}, r"site 2 \(Bonn\) has no price, and \[price\] is not set"),
    ],
)
def test_a_column_that_its_table_cannot_use_is_refused(planned, tables, complaint):
    with pytest.raises(InputError, match=complaint):
        planned(**tables)


@pytest.mark.parametrize(
    ("kind", "name", "known"),
    [("curve", "v100-CAPS", "V100-caps"), ("capped", "a40", "A40"), ("clocks", "A40", "a40")],
)
def test_a_gpu_is_known_in_capitals_or_not_and_another_is_refused_with_the_way_out(own, kind, name, known):
    columns = {"gpu": np.array([name, "H100", ""])}
    model = THROUGHPUT_MODELS[kind]().resolve()
    assert resolved(model.with_gpu(name)) == resolved(model.with_gpu(known)) != resolved(model)
    with pytest.raises(InputError) as error:
        Hardware.of(model, columns, 3, "sites.path", 1.0)
    told = str(error.value)
    assert f"gpu = 'H100': throughput.kind = '{kind}' knows no such GPU by its name; did you mean" in told
    assert f" {known}" in told
    assert 'throughput.kind = "curve" with its points in path (the gpu of such sites is empty)' in told


def test_a_price_table_that_columns_leave_nothing_to_is_refused(planned, own):
    Path(own.path).write_text(PLANNED.replace("Bonn,5,100,,,,,,us", "Bonn,5,100,,,,50,,us"))
    with pytest.raises(InputError, match=r"has the price of every site in a column, so that \[price\] would"):
        planned()
    assert planned(price=SIGNALS["none"]()).signals["price"].at(0.0).tolist() == [0.042, 0.108, 0.05]


def test_a_further_column_is_kept_where_facts_list_it_and_else_refused_with_that_way_out(planned, own):
    planned()
    with pytest.raises(InputError, match=r'keep it as a fact: sites.facts = \["operator"\]'):
        world(CsvSites(path=own.path), throughput=THROUGHPUT_MODELS["capped"]())
    with pytest.raises(InputError, match="has no column 'owner'"):
        world(CsvSites(path=own.path, facts=["operator", "floors", "owner"]))


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ("bandwidth_gBps", "did you mean 'bandwidth_gbps' (bits per second, 8 for a byte)?"),
        ("contract_mW", "did you mean 'contract_mw' (megawatts)?"),
    ],
)
def test_a_suggestion_that_another_case_would_change_names_its_unit(own, column, hint):
    Path(own.path).write_text(f"distance_km,{column}\n5,100\n")
    with pytest.raises(InputError) as error:
        world(own)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("rows", "warned"),
    [
        ("gpus\n100\n", ""),
        ("gpus\n12000\n", "site 0 computes 120 times as fast as timing.seconds_per_sample says"),
        ("gpus,seconds_per_sample\n12000,0.1\n", ""),
        ("gpus,contract_mw\n100,0.0004\n", "site 0 has a contract of 400 W, its GPUs draw at most 44 kW"),
        ("gpus,contract_mw\n100,0.001\n", ""),
        ("gpus,gpu\n100,A40\n", "their kinds of GPUs are as fast as each other"),
    ],
)
def test_hardware_that_other_values_were_not_meant_for_is_warned_of(own, rows, warned):
    Path(own.path).write_text(rows)
    made = world(own, throughput=THROUGHPUT_MODELS["capped"](gpu="V100").resolve())
    lines = [line for line in plausible.warnings(made) if "GPUs" in line]
    assert (len(lines) == 1 and warned in lines[0]) if warned else not lines


def test_a_time_of_a_sample_that_no_site_uses_is_warned_of(own):
    def warned(rows, seconds):
        Path(own.path).write_text(f"distance_km,seconds_per_sample\n{rows}")
        found = plausible.warnings(world(own, timing=Timing(seconds_per_sample=seconds)))
        return [line.partition(" is not used")[0] for line in found if "is not used" in line]

    assert warned("5,0.1\n6,0.2\n", 1.74) == ["timing.seconds_per_sample = 1.74"]
    assert warned("5,0.1\n6,\n", 1.74) == warned("5,0.1\n6,0.2\n", Timing().seconds_per_sample) == []


def test_zones_that_are_named_as_the_sites_but_drawn_at_random_are_warned_of(own, tmp_path):
    Path(own.path).write_text("name,distance_km\n" + "".join(f"s{i},5\n" for i in range(6)))
    rows = [f"2022-01-0{day}," + ",".join(map(str, range(10, 17))) for day in (1, 2)]
    (tmp_path / "prices.csv").write_text("\n".join(["time," + ",".join(f"s{i}" for i in range(7)), *rows]))
    prices = {"path": str(tmp_path / "prices.csv"), "value_column": "*", "unit": "per MWh"}
    drawn = world(own, price=SIGNALS["csv"](**prices))
    assert sum('set price.site_column = "name"' in line for line in plausible.warnings(drawn)) == 1
    named = world(own, price=SIGNALS["csv"](**prices, site_column="name"))
    assert not any("site_column" in line for line in plausible.warnings(named))
    assert named.signals["price"].at(0.0) == pytest.approx([0.010, 0.011, 0.012, 0.013, 0.014, 0.015])
