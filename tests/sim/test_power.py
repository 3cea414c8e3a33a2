"""Power models: the contract that every one keeps, and power that follows traces."""

import math
import re

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.cluster.site_power import ClusterPower
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply
from hpctrip.sim.power.traces import Trace
from hpctrip.sim.traces.synthetic import synthetic_traces

TIMES_S = (0.0, 299.0, 300.0, 86_400.0, 5e6)


@pytest.fixture(params=sorted({*POWER_MODELS, "cluster"}))
def model(request, tmp_path):
    if request.param == "csv":
        rows = [f"{600 * step}" + ",0.5" * 7 for step in range(3)]
        (tmp_path / "power.csv").write_text("\n".join(["time_s,a,b,c,d,e,f,g", *rows]))
        return POWER_MODELS["csv"](path=str(tmp_path / "power.csv"), unit="fraction")
    if request.param != "cluster":
        return POWER_MODELS[request.param]()
    site = tmp_path / "site.toml"
    site.write_text("[cluster]\nnum_nodes = 2\n[jobs]\nnum_jobs = 20\nspan_s = 7200\nlargest = 8\n")
    return ClusterPower(path=str(site), num_clusters=2)


def test_power_is_a_fraction_of_every_site_that_depends_on_seed_and_time_alone(model):
    supply, again = (model.checked_supply({}, np.full(7, 1e3), 3) for _ in range(2))
    forward = [supply.at(clock_s).copy() for clock_s in TIMES_S]
    for fraction in forward:
        assert fraction.shape == (7,) and fraction.dtype == np.float64
        assert ((fraction >= 0) & (fraction <= 1)).all()
    assert np.array_equal(forward, [again.at(clock_s).copy() for clock_s in reversed(TIMES_S)][::-1])


@pytest.mark.parametrize(("step_s", "at_s"), [(math.inf, "181440"), (600.0, "180")])
def test_a_supply_that_changes_within_a_step_is_refused(step_s, at_s):
    class Drifting(PowerSupply):
        def at(self, clock_s):
            return np.full(3, 1 / (1 + clock_s))

    class Drift(PowerModel):
        kind = "drift"

        def supply(self, num_sites, seed):
            supply = Drifting()
            supply.step_s = step_s
            return supply

    problem = f"gives other power at {at_s} s than at 0 s, although its step_s = {step_s:g}"
    with pytest.raises(InputError, match=re.escape(problem)):
        Drift().checked_supply({}, np.ones(3), 0)


def test_power_holds_within_a_step_and_facts_are_one_number_per_site(model):
    supply = model.checked_supply({}, np.full(7, 1e3), 3)
    step_s = supply.step_s if math.isfinite(supply.step_s) else 1e9
    assert step_s > 0
    for step in (0, 1, 1000):
        start, end = step * step_s, math.nextafter((step + 1) * step_s, 0)
        assert np.array_equal(supply.at(start), supply.at(end))
    assert all(np.asarray(facts).shape == (7,) for facts in supply.describe().values())
    assert supply.synthetic is (model.kind != "csv")  # every default needs no file: all are synthetic


UTIL = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]


@pytest.fixture
def path(tmp_path):
    """Two domains of four five-minute steps."""
    lines = ["time,cell,pdu,production_power_util"]
    for pdu, util in zip(("pdu6", "pdu7"), UTIL, strict=True):
        lines += [f"{(600 + 300 * i) * 1_000_000},a,{pdu},{value}" for i, value in enumerate(util)]
    (tmp_path / "cella.csv").write_text("\n".join(lines))
    return str(tmp_path)


def indices(supply):
    """The domain that each site follows, as an index into the traces, [N]."""
    return np.array([supply.traces.names.index(name) for name in supply.describe()["trace_domain"]])


def test_flags_may_mean_the_other_way_round(tmp_path):
    lines = ["time,cell,pdu,production_power_util,bad_production_power_data"]
    lines += [f"{(600 + 300 * i) * 1_000_000},a,pdu6,{0.1 * i:.1f},true" for i in range(5)]
    (tmp_path / "cella_pdu6.csv").write_text("\n".join(lines))
    supply = Trace(path=str(tmp_path), flags="true-is-good", offsets=False).supply(num_sites=1, seed=1)
    assert supply.at(600.0) == pytest.approx([0.8])


def test_power_is_one_minus_utilisation_held_over_each_interval(path):
    supply = Trace(path=path, offsets=False).supply(num_sites=8, seed=1)
    domain = indices(supply)
    assert set(domain) == {0, 1}
    for clock_s, step in ((0, 0), (299.9, 0), (300, 1), (1199.9, 3)):
        assert supply.at(clock_s) == pytest.approx(1 - np.array(UTIL)[domain, step])
    assert supply.step_s == 300.0 and not supply.synthetic


def test_each_site_starts_at_its_own_offset_and_wraps_at_the_end(path):
    supply = Trace(path=path).supply(num_sites=50, seed=1)
    domain, offset = indices(supply), supply.describe()["trace_offset"]
    assert set(offset) == {0, 1, 2, 3}
    for step in range(9):
        expected = 1 - np.array(UTIL)[domain, (offset + step) % 4]
        assert supply.at(step * 300.0) == pytest.approx(expected)


@pytest.mark.parametrize("offsets", [False, True])
def test_raise_stops_where_the_first_trace_of_a_site_ends(path, offsets):
    supply = Trace(path=path, at_end="raise", offsets=offsets).supply(num_sites=3, seed=1)
    end_s = 1200.0 - 300 * supply.describe()["trace_offset"].max()
    assert end_s < 1200 if offsets else end_s == 1200
    assert len(supply.at(end_s - 1)) == 3
    with pytest.raises(
        InputError, match=f"simulated time {end_s:g} s is past the end of a site's power trace"
    ) as ended:
        supply.at(end_s)
    assert ("set offsets = false" in str(ended.value)) == offsets


def test_a_dated_trace_begins_within_a_step_and_is_cut_to_the_calendar_of_others(tmp_path):
    rows = [f"2022-01-01 0{h}:00,a,pdu1,0.{h}" for h in range(6)]
    (tmp_path / "cella.csv").write_text("datetime,cell,pdu,production_power_util\n" + "\n".join(rows))
    trace = Trace(path=str(tmp_path), offsets=False)
    supply, hour_us = trace.supply(num_sites=1, seed=1), 3_600_000_000
    own = supply.calendar
    assert own.duration_s == 6 * 3600 and own.start_us is None
    half_past_two_us = own.first_us + hour_us * 5 // 2
    supply = supply.on(Calendar(own.first_us + hour_us, own.first_us + 5 * hour_us, half_past_two_us))
    spent = [round(1 - float(supply.at(half_hour * 1800.0)[0]), 3) for half_hour in range(9)]
    assert spent == [0.2, 0.3, 0.3, 0.4, 0.4, 0.1, 0.1, 0.2, 0.2]  # from 05:00 on again as from 01:00
    assert supply.next_change_s(0.0) == 1800 and supply.next_change_s(4 * 1800.0) == 5 * 1800


def test_traces_that_begin_anywhere_have_no_moment_of_start(path):
    assert Trace(path=path).supply(1, 1).calendar is None
    with pytest.raises(InputError, match="needs data with dates"):
        Trace(path=path, offsets=False, start="2022-01-01").supply(1, 1)
    with pytest.raises(ValueError, match="start needs offsets = false"):
        Trace(path=path, start="2022-01-01")


def test_without_a_file_it_follows_the_synthetic_month_and_says_so():
    supply = Trace(offsets=False).supply(num_sites=3, seed=1)
    domain = indices(supply)
    assert supply.synthetic
    assert supply.at(0) == pytest.approx(1 - synthetic_traces(2019).value[domain, 0])


def test_the_runs_seed_moves_the_sites_but_not_the_synthetic_month():
    one, other = (Trace().supply(num_sites=100, seed=seed) for seed in (1, 2))
    assert np.array_equal(one.traces.value, other.traces.value)
    assert (one.describe()["trace_domain"] != other.describe()["trace_domain"]).any()


def test_domains_and_offsets_are_spread_evenly_over_many_sites(path):
    supply = Trace(path=path).supply(num_sites=8000, seed=1)
    domain, offset = indices(supply), supply.describe()["trace_offset"]
    counts = np.bincount(domain * 4 + offset, minlength=8)
    assert counts == pytest.approx(1000, abs=150)  # five standard deviations


def own_power(tmp_path, text, sites=None, full_w=(1000.0, 2000.0), **keys):
    """The supply of two sites with a file of this text."""
    (tmp_path / "power.csv").write_text(text)
    columns = {name: np.array(values) for name, values in (sites or {}).items()}
    return POWER_MODELS["csv"](path=str(tmp_path / "power.csv"), **keys).supply_at(
        columns, np.array(full_w), 0
    )


ROWS = "0,{},{}\n60,{},{}\n"


@pytest.mark.parametrize(
    ("header", "values", "keys", "expected"),
    [
        ("a_w,b_kw", (250, 1, 500, 4), {}, [[0.25, 0.5], [0.5, 1.0]]),
        ("a (MW),b [W]", (0.0005, 500, 0, 0), {}, [[0.5, 0.25], [0, 0]]),
        ("rack_01_kw,New York kW", (0.5, 1, 0, 0), {}, [[0.5, 0.5], [0, 0]]),
        ("hall_1_fraction,hall_2_power_w", (0.7, 400, 1, 0), {}, [[0.7, 0.2], [1, 0]]),
        ("us_va,b_w_mean", (250, 1, 500, 4), {"unit": "W"}, [[0.25, 0.0005], [0.5, 0.002]]),
        ("edge_1_mw,edge_2", (0.0005, 0.001, 0, 0), {"unit": "MW"}, [[0.5, 0.5], [0, 0]]),
        ("a,b", (0.25, 1.5, 0.5, ""), {"unit": "kW"}, [[0.25, 0.75], [0.5, 0.75]]),
        ("site,power_kw", ("a", 0.25, "a", "0.5\n0,b,1\n60,b,2"), {}, [[0.25, 0.5], [0.5, 1.0]]),
        ("site,x", ("b", 1, "b", "2\n0,a,0.25\n60,a,0.5"), {"unit": "kW"}, [[1.0, 0.125], [1.0, 0.25]]),
        ("a_w,b_w", (250, 1500, 5000, 0), {"meaning": "used"}, [[0.75, 0.25], [0, 1]]),
        ("a_w,b_w", (1250, 1500, 0, 0), {"meaning": "used", "capacity_w": 1500.0}, [[0.25, 0], [1, 0.75]]),
        (
            "a_fraction,b_w",
            (0.75, 1, 0.9, 1),
            {"meaning": "used", "capacity_w": 2000.0},
            [[0.5, 1], [0.2, 1]],
        ),
    ],
)
def test_power_of_a_file_is_a_fraction_of_what_the_hardware_of_its_site_needs(
    tmp_path, header, values, keys, expected
):
    supply = own_power(tmp_path, f"time_s,{header}\n{ROWS.format(*values)}", **keys)
    powers = [supply.at(clock_s).tolist() for clock_s in (0.0, 60.0)]
    assert np.array(powers) == pytest.approx(np.array(expected), abs=1e-3)
    assert supply.next_change_s(0.0) == 60 and not supply.synthetic and supply.calendar is None


@pytest.mark.parametrize(
    ("values", "keys", "doubts"),
    [
        ((250, 1, 500, 4), {"unit": "W"}, []),
        ((0.25, 1, 0.5, 4), {"unit": "W"}, ["P is at most 0.002 at every site and time; check power.unit"]),
        (
            (100, 1500, 0, 0),
            {"unit": "W", "meaning": "used", "capacity_w": 1200.0},
            ["others use up to 1500 of the 1200 W of b, and more than there is at 1 of 2 sites"],
        ),
        ((0, 0, 0.5, 0.5), {"unit": "fraction", "meaning": "used", "capacity_w": 1200.0}, []),
    ],
)
def test_a_unit_or_a_capacity_that_is_probably_wrong_is_a_warning(tmp_path, values, keys, doubts):
    warnings = own_power(tmp_path, f"time_s,a,b\n{ROWS.format(*values)}", **keys).warnings()
    assert len(warnings) == len(doubts) and all(map(str.__contains__, warnings, doubts)), warnings


def test_a_site_follows_the_column_of_its_power_trace_or_else_of_its_name(tmp_path):
    text = "time_s,a_w,b_w\n" + ROWS.format(100, 500, 100, 500)
    by_name = own_power(tmp_path, text, {"name": ["b", "a"]})
    assert by_name.at(0.0).tolist() == [0.5, 0.05]
    by_trace = own_power(tmp_path, text, {"name": ["x", "y"], "power_trace": ["b", "b"]})
    assert by_trace.describe()["power_column"].tolist() == ["b", "b"]
    either = own_power(tmp_path, text, {"name": ["b", "x"], "power_trace": ["", "a"]})
    assert either.describe()["power_column"].tolist() == ["b", "a"]
    neither = own_power(tmp_path, text, {"name": ["", ""], "power_trace": ["", ""]})
    assert neither.describe()["power_column"].tolist() == ["a", "b"]
    with pytest.raises(InputError, match="names '', of which there is no power"):
        own_power(tmp_path, text, {"name": ["", "a"]})


@pytest.mark.parametrize(
    ("text", "keys", "complaint"),
    [
        ("time_s,a,b_w\n0,1,1\n60,1,1\n", {}, "'a' does not tell its unit; set power.unit = \"kW\""),
        (
            "time_s,a_mW,b_w\n0,1,1\n60,1,1\n",
            {},
            "column 'a_mW' is not in W, kW or MW, spelled so (mW is a milliwatt)",
        ),
        ("time_s,b_w,a (mW)\n0,1,1\n60,1,1\n", {}, "column 'a (mW)' is not in W, kW or MW, spelled so"),
        ("time_s,a_KW,b_w\n0,1,1\n60,1,1\n", {"unit": "kW"}, "convert it, and name it e.g. a_kw"),
        (
            "time_s,a_1_mw,b\n0,1,1\n60,1,1\n",
            {"unit": "kW"},
            "'a_1_mw' is in MW by its name, but power.unit = 'kW'",
        ),
        (
            "time_s,a_w,b\n0,1,1\n60,1,1\n",
            {"unit": "fraction"},
            "leave power.unit out, or take the unit out of the name",
        ),
        ("time_s,loadMW,b\n0,1,1\n60,1,1\n", {"unit": "kW"}, "'loadMW' is in MW by its name"),
        ("time_s,a_mw_mean,b\n0,1,1\n60,1,1\n", {"unit": "kW"}, "'a_mw_mean' is in MW by its name"),
        ("time_s,loadKW,b\n0,1,1\n60,1,1\n", {"unit": "kW"}, "'loadKW' is not in W, kW or MW, spelled so"),
        (
            "time_s,a_kva,b\n0,1,1\n60,1,1\n",
            {"unit": "kW"},
            "multiply by the power factor, and name it e.g. a_kw",
        ),
        ("time_s,a (%),b\n0,1,1\n60,1,1\n", {"unit": "fraction"}, "divide by 100, and name it a_fraction"),
        (
            "time_s,rack_1_kwh,b_w\n0,1,1\n60,1,1\n",
            {},
            "divide by the hours of a step, and name it e.g. rack_1_kw",
        ),
        ("hour,a_w,b_w\n0,1,1\n60,1,1\n", {}, "has no column of times among its columns hour, a_w, b_w"),
        (
            "timestamp,a_w,b_w\n0,1,1\n60,1,1\n",
            {},
            "name one column of times: time (ISO 8601), or time_s, time_ms, time_us (numbers)",
        ),
        ("time_s;a_w;b_w\n0;1;1\n60;1;1\n", {}, "fields are separated by commas, not semicolons"),
        ("time_s,a_kwh,b_w\n0,1,1\n60,1,1\n", {}, "divide by the hours of a step, and name it e.g. a_kw"),
        ("time_s,a_w,b_w\n0,1,-5\n60,1,1\n", {}, "line 2: b_w = '-5' is outside 0 to 1e"),
        ("time_s,a_fraction,b_w\n0,70,5\n60,1,1\n", {}, "line 2: a_fraction = '70' is outside 0 to 1"),
        ("time_s,site,a_w\n0,a,\n60,a,\n", {}, "holds no value of a"),
        ("time_s,site,a_w\n0,,1\n60,a,1\n", {}, "line 2: site = '' is missing"),
        (
            "time_s,site,a_w,b_w\n0,a,1,1\n60,a,1,1\n",
            {},
            "time_s, site, a_w, b_w, and so is neither wide nor long",
        ),
        ("time_s\n0\n60\n", {}, "has the columns time_s, and so is neither wide nor long"),
        ("time_s,a_w,b_w\n", {}, "holds no power"),
        ("time_s,a_w,a_kw\n0,1,5\n60,1,1\n", {}, "has two columns of one site among a_w, a_kw"),
        ("time_s,a_w\n0,1\n60,1\n", {}, "has columns for 1 site, there are 2 without names"),
        (
            "time_s,a_w,b_w\n0,1,1\n60,1,1\n",
            {"sites": {"name": ["a", "c"]}},
            "names 'c', of which there is no power",
        ),
        ("time_s,a_w,b_w\n0,1,1\n0,1,2\n60,1,1\n", {}, "line 3: holds 1 and 2 of b at 0 s; keep one of them"),
        (
            "time_s,a_w,b_w\n0,1,1\n60,1,1\n",
            {"start": "2024-05-01"},
            "power.start = '2024-05-01': needs data with",
        ),
    ],
)
def test_a_wrong_power_file_is_one_clear_line(tmp_path, text, keys, complaint):
    with pytest.raises(InputError, match=re.escape(complaint)):
        own_power(tmp_path, text, **keys)


@pytest.mark.parametrize(
    ("times", "rules"),
    [
        ("time,a_w\n2024-05-01,1\n2024-05-01T01:00,2\n", 1),
        ("time_s,a_w\n0,1\n60,2\n", 1),
        ("time_s,a_w\n1714564800,1\n1714564860,2\n", 2),
        ("time_ms,a_w\n1714564800000,1\n1714564860000,2\n", 2),
        ("no table", 1),
    ],
)
def test_rules_are_raised_only_where_times_are_numbers_since_1970(tmp_path, times, rules):
    (tmp_path / "power.csv").write_text(times)
    assert POWER_MODELS["csv"](path=str(tmp_path / "power.csv")).rules == rules
