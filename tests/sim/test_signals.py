"""Signals of the grid: profiles, files in several layouts, time zones, and the zones of sites."""

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.config.component import Component
from hpctrip.config.inputs import validate
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.grid.signals import unusual
from hpctrip.sim.sites import SITES

SITES_20 = SITES["uniform"](num_sites=20)
GRID = Path(__file__).parents[2].parent / "shared/data/grid/carbon"


def signal(kind, table="carbon", sites=SITES_20, num_sites=20, seed=0, **keys):
    return SIGNALS[kind](**keys).checked_signal(table, sites, num_sites, seed)


def hourly(path, zones=("A",), hours=range(48), column="per_kwh", value=lambda zone, hour: hour):
    """Files of hourly values from 2022-01-01 on."""
    for zone in zones:
        start = np.datetime64("2022-01-01T00:00")
        rows = [f"{start + np.timedelta64(h, 'h')},{value(zone, h)}\n" for h in hours]
        (path / f"{zone}.csv").write_text(f"time,{column}\n" + "".join(rows))
    return str(path)


def test_nothing_is_known_by_default_and_a_constant_is_the_same_everywhere():
    none, same = signal("none"), signal("constant", per_kwh=300.0)
    assert not none.is_known and np.isnan(none.at(5.0)).all() and none.next_change_s(5.0) == np.inf
    assert same.at(1e9).tolist() == [300] * 20 and same.next_change_s(0) == np.inf and same.synthetic


def test_a_daily_profile_peaks_at_its_hour_in_every_time_zone():
    together = signal("daily", mean=200.0, swing=100.0, peak_hour=18.5, spread=False)
    values = [together.at(3600 * h)[0] for h in range(48)]
    assert np.argmax(values[:24]) == 18 and values[18] == pytest.approx(300) and values[:24] == values[24:]
    assert np.mean(values[:24]) == pytest.approx(200) and together.synthetic
    apart = signal("daily", mean=200.0, swing=100.0)
    assert len(np.unique(apart.at(0.0))) > 5
    assert apart.next_change_s(0.0) == 3600


def test_a_profile_below_zero_is_a_price_but_no_carbon():
    keys = {"mean": 1.0, "swing": 2.0}
    assert signal("daily", table="price", **keys).at(0.0).min() < 0
    with pytest.raises(
        InputError, match=r"carbon.kind = 'daily': gave the carbon of .* = -0\.\d+; it must be"
    ):
        signal("daily", **keys)
    with pytest.raises(InputError, match=r"carbon.kind = 'constant': gave the carbon of .* = -1; it must be"):
        signal("constant", per_kwh=-1.0)


def test_files_of_a_folder_are_zones_that_sites_draw_by_the_seed(tmp_path):
    path = hourly(tmp_path, "AB", value=lambda zone, hour: hour + 100 * (zone == "B"))
    grid = signal("csv", path=path)
    assert grid.names == ["A", "B"] and set(grid.zone) == {0, 1} and not grid.synthetic
    assert grid.at(3600.0).tolist() == (1 + 100 * grid.zone).tolist()
    assert grid.next_change_s(3600.0) == 7200
    assert grid.at(48 * 3600.0).tolist() == grid.at(0.0).tolist()  # it begins again
    other = signal("csv", path=path, seed=1)
    assert other.zone.tolist() != grid.zone.tolist()
    assert signal("csv", table="price", path=path).zone.tolist() == grid.zone.tolist()


def test_sites_may_name_their_zone_in_their_own_file(tmp_path):
    path = hourly(tmp_path, "AB", value=lambda zone, hour: 100 * (zone == "B"))
    (tmp_path / "sites").mkdir()
    file = tmp_path / "sites" / "sites.csv"
    file.write_text("distance_m,grid\n1,B\n2,A\n3,B\n")
    sites = SITES["csv"](path=str(file))
    keys = {"path": path, "sites": sites, "num_sites": 3}
    assert signal("csv", site_column="grid", **keys).at(0.0).tolist() == [100, 0, 100]
    file.write_text("distance_m,grid\n1,B\n2,a\n")
    with pytest.raises(InputError, match="site 1 is in 'a', of which there are no data"):
        signal("csv", site_column="grid", **keys)
    with pytest.raises(InputError, match="has no column 'zone'; known: distance_m, grid"):
        signal("csv", site_column="zone", **keys | {"sites": SITES["csv"](path=str(file))})
    with pytest.raises(InputError, match="sites of kind 'uniform' have no column 'grid'"):
        signal("csv", path=path, site_column="grid")


def test_simulated_time_may_begin_inside_the_data(tmp_path):
    path = hourly(tmp_path)
    grid = signal("csv", path=path, start="2022-01-01T05:30", at_end="raise")
    assert grid.at(0.0)[0] == 5 and grid.next_change_s(0.0) == 1800
    assert grid.at(1800.0)[0] == 6
    assert grid.at(42.4 * 3600)[0] == 47
    with pytest.raises(InputError, match=r"carbon.at_end: simulated time 153000 s is past the end"):
        grid.at(42.5 * 3600)
    with pytest.raises(
        InputError, match="lies outside the data of carbon, 2022-01-01T00:00:00 to 2022-01-03"
    ):
        signal("csv", path=path, start="2022-01-03")


def test_columns_units_and_zones_of_a_csv_file_have_names(tmp_path):
    (tmp_path / "prices.csv").write_text(
        "when,area,eur\n2022-01-01,N,50\n2022-01-01,S,-20\n2022-01-01T01:00,N,60\n"
        "2022-01-01T01:00,S,\n2022-01-01T02:00,S,40\n2022-01-01T02:00,N,70\n"
    )
    columns = {"time_column": "when", "zone_column": "area", "value_column": "eur", "unit": "per MWh"}
    grid = signal("csv", table="price", path=str(tmp_path / "prices.csv"), **columns)
    assert grid.names == ["N", "S"]
    by_zone = [[series.at(3600.0 * h) for h in range(3)] for series in grid.series]
    assert by_zone == [pytest.approx([0.05, 0.06, 0.07]), pytest.approx([-0.02, -0.02, 0.04])]


@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        ("time,S_price_per_kwh,N_price_per_mwh\n{0},1,50\n{1},2,60\n", {}),
        ("time,S,N\n{0},1000,50\n{1},2000,60\n", {"unit": "per MWh"}),
        ("N,time,S\n50,{0},1000\n60,{1},2000\n", {"unit": "per MWh"}),
        ("time,zone,price_per_mwh\n{0},N,50\n{1},N,60\n{0},S,1000\n{1},S,2000\n", {}),
        ("site,x,time\nN,50,{0}\nN,60,{1}\nS,1000,{0}\nS,2000,{1}\n", {"unit": "per MWh"}),
        (
            "time,x,area\n{0},50,N\n{1},60,N\n{0},1000,S\n{1},2000,S\n",
            {"unit": "per MWh", "zone_column": "area"},
        ),
    ],
)
def test_a_wide_and_a_long_table_of_the_same_values_are_the_same_zones(tmp_path, rows, keys):
    (tmp_path / "prices.csv").write_text(rows.format("2022-01-01", "2022-01-01T01:00"))
    grid = signal("csv", table="price", path=str(tmp_path / "prices.csv"), value_column="*", **keys)
    assert [*map(grid.names.index, "NS")] == [0, 1]
    assert np.array([series.value for series in grid.series]) == pytest.approx(
        np.array([[0.05, 0.06], [1, 2]])
    )


@pytest.mark.parametrize(
    ("header", "keys", "problem"),
    [
        (
            "time,site,zone,per_kwh",
            {},
            "has the columns time, site, zone, per_kwh, and so is neither wide nor long; give",
        ),
        (
            "time,site,a,b",
            {},
            "neither wide nor long; give time and a column of values for each site or zone",
        ),
        ("time,x,a,b", {"zone_column": "x"}, "neither wide nor long"),
        ("time,x,a,b", {"zone_column": "y"}, "has no column 'y'"),
        ("time,a,b,c", {}, "carbon.value_column = 'a': does not tell its unit"),
        (
            "time,a,b,c",
            {"value_column": "per_kwh"},
            'set carbon.value_column, to "*" for a column of each zone',
        ),
    ],
)
def test_a_table_of_neither_layout_is_one_clear_line(tmp_path, header, keys, problem):
    (tmp_path / "A.csv").write_text(f"{header}\n2022-01-01,1,2,3\n2022-01-02,1,2,3\n")
    with pytest.raises(InputError, match=re.escape(problem)):
        signal("csv", path=str(tmp_path), **{"value_column": "*"} | keys)


def test_clocks_that_are_set_back_show_an_hour_twice_and_skip_one_in_spring(tmp_path):
    file = tmp_path / "madrid.csv"
    autumn = ["2022-10-30 01:00", "2022-10-30 02:00", "2022-10-30 02:00", "2022-10-30 03:00"]
    file.write_text("time,per_kwh\n" + "".join(f"{t},{i}\n" for i, t in enumerate(autumn)))
    grid = signal("csv", path=str(file), timezone="Europe/Madrid")
    assert [grid.at(3600.0 * h)[0] for h in range(4)] == [0, 1, 2, 3]
    file.write_text("time,per_kwh\n2022-03-27 01:00,1\n2022-03-27 02:30,2\n2022-03-27 03:00,3\n")
    with pytest.raises(InputError, match="line 3: time = '2022-03-27 02:30' is a time that the clocks"):
        signal("csv", path=str(file), timezone="Europe/Madrid")
    file.write_text("time,per_kwh\n2022-03-27T01:30+01:00,1\n2022-03-27T01:30Z,2\n")
    assert signal("csv", path=str(file)).next_change_s(0.0) == 3600


@pytest.mark.parametrize("order", [1, -1])
def test_all_hours_of_the_day_when_clocks_are_set_back_are_there_in_rows_of_either_order(tmp_path, order):
    hours = [*range(3), *range(2, 24)]
    rows = [f"2025-10-26 {hour:02}:00,{0 if hour == 2 else i}" for i, hour in enumerate(hours)]
    (tmp_path / "be.csv").write_text("time,per_kwh\n" + "\n".join(rows[::order]))
    grid = signal("csv", path=str(tmp_path / "be.csv"), timezone="Europe/Brussels")
    assert grid.series[0].value.tolist() == [0, 1, 0, 0, *range(4, 25)]
    assert grid.series[0].start_s.tolist() == [3600.0 * hour for hour in range(25)]


def test_contradicting_rows_may_be_local_times_that_clocks_show_twice(tmp_path):
    (tmp_path / "A.csv").write_text("time,per_kwh\n2025-10-26 02:00,1\n2025-10-26 02:00,2\n")
    with pytest.raises(
        InputError, match=r"keep one of them; where clocks that were set back .* set timezone"
    ):
        signal("csv", path=str(tmp_path))


@pytest.mark.parametrize(
    ("column", "unit", "factor"),
    [
        ("per_kwh", "lb per MWh", 0.45359237),
        ("CO2 (lbs/MWh)", "lb per MWh", 0.45359237),
        ("kgCO2eq/kWh", "kg per kWh", 1000),
        ("t CO₂ per MWh", "t per MWh", 1000),
        ("kg/MWh", "kg per MWh", 1),
        ("kg/MWh", "per kWh", 1),
        ("Actual Carbon Intensity (gCO2/kWh)", "per kWh", 1),
        ("co2_lb_per_MWh", "lb per MWh", 0.45359237),
        ("intensity per MWh", "kg per MWh", 1),
        ("MOER lbs", "lb per MWh", 0.45359237),
        ("Carbon intensity gCO₂eq/kWh (direct)", "per kWh", 1),
        ("metric tons of CO2 equivalent per MWh", "t per MWh", 1000),
        ("CT zone t", "per kWh", 1),
    ],
)
def test_masses_and_energies_have_units(tmp_path, column, unit, factor):
    path = hourly(tmp_path, column=column, value=lambda zone, hour: 500)
    assert signal("csv", path=path, value_column=column, unit=unit).at(0.0)[0] == pytest.approx(500 * factor)


@pytest.mark.parametrize(
    ("column", "table", "unit", "factor"),
    [
        ("per_kwh", "carbon", "per kWh", 1),
        ("moer_lb_per_mwh", "carbon", "lb per MWh", 0.45359237),
        ("kg_per_mwh", "carbon", "kg per MWh", 1),
        ("day_ahead_price_per_mwh", "price", "per MWh", 1e-3),
    ],
)
def test_the_end_of_a_name_states_the_unit_which_is_then_the_one_of_the_input(
    tmp_path, column, table, unit, factor
):
    path = hourly(tmp_path, column=column, value=lambda zone, hour: 500)
    stated = SIGNALS["csv"](path=path, value_column=column)
    assert signal("csv", table=table, path=path, value_column=column).at(0.0)[0] == pytest.approx(
        500 * factor
    )
    assert stated.resolve() == SIGNALS["csv"](path=path, value_column=column, unit=unit)


@pytest.mark.parametrize("column", ["pounds/MWh", "CT price $/MWh"])
def test_pounds_of_a_price_are_money_and_ct_may_be_connecticut(tmp_path, column):
    path = hourly(tmp_path, column=column, value=lambda zone, hour: 500)
    grid = signal("csv", table="price", path=path, value_column=column, unit="per MWh")
    assert grid.at(0.0)[0] == 0.5


@pytest.mark.parametrize(
    ("column", "table", "unit", "problem"),
    [
        ("CO2 (lb/MWh)", "carbon", "per kWh", "set carbon.unit = 'lb per MWh'"),
        ("co2 (kg/MWhe)", "carbon", None, "does not tell its unit; set carbon.unit = 'kg per MWh'"),
        ("lbsPerMwh", "carbon", "per MWh", "set carbon.unit = 'lb per MWh'"),
        ("LBMP ($/MWHr)", "price", None, "does not tell its unit; set price.unit = 'per MWh'"),
        ("LBMP ($/MWHr)", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("Price (EUR/MWhe)", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("$/MW-h", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("EUR/(MW·h)", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("per megawatt hour", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("SpotPriceEURperMWh", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("price_per_mwh", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("centsPerKwh", "price", None, "does not tell its unit; convert it"),
        ("EUR/100 kWh", "price", "per kWh", "convert it"),
        ("RRP", "price", None, "does not tell its unit; set price.unit to 'per kWh' or 'per MWh'$"),
        ("pounds_per_mwh", "carbon", None, "does not tell its unit; set carbon.unit = 'lb per MWh'"),
        ("[EUR/MWh]", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("gCO2/kWh", "carbon", "per MWh", "set carbon.unit = 'per kWh'"),
        ("moer_lbs_per_mwh", "carbon", "per kWh", "set carbon.unit = 'lb per MWh'"),
        ("pounds per MWh", "carbon", "per MWh", "set carbon.unit = 'lb per MWh'"),
        ("LB/MWH", "carbon", "per MWh", "set carbon.unit = 'lb per MWh'"),
        ("CO2_kg_MWh", "carbon", "per MWh", "set carbon.unit = 'kg per MWh'"),
        ("tonnes/MWh", "carbon", "per MWh", "set carbon.unit = 't per MWh'"),
        ("kgCO2/GWh", "carbon", "per MWh", "convert it"),
        ("ozCO2/kWh", "carbon", "per kWh", "convert it"),
        ("price_eur_mwh", "price", "per kWh", "set price.unit = 'per MWh'"),
        ("ct/kWh", "price", "per kWh", "convert it"),
        ("pence_per_kwh", "price", "per kWh", "convert it"),
        ("EUR", "price", "lb per MWh", "price.unit = 'lb per MWh': is a mass"),
        ("EUR", "price", "EUR/MWh", "'EUR/MWh': is not a unit .*; give 'per kWh' or 'per MWh'$"),
        ("per_kwh", "carbon", "per J", "'per J': is not a unit of these values; give 'per kWh'"),
        ("co2", "carbon", "g/kWh", "'g/kWh': is not a unit .*; give 'per kWh' or .* or 'lb per MWh'$"),
    ],
)
def test_a_column_in_another_unit_than_is_read_is_refused(tmp_path, column, table, unit, problem):
    path = hourly(tmp_path, column=column)
    with pytest.raises(InputError, match=problem):
        signal("csv", table=table, path=path, value_column=column, unit=unit)


@pytest.mark.parametrize(
    ("table", "values", "currency", "doubts"),
    [
        (
            "carbon",
            (0.6, 0.1),
            "",
            ["the highest is 0.6 g for a kilowatt-hour; if the values are in ano"],
        ),
        ("carbon", (600, 0), "", []),
        ("carbon", (0, 0), "", []),
        ("carbon", (6e5, 6e5), "", ["half of them are above 600000 g"]),
        (
            "price",
            (90, 80, -5),
            "EUR",
            ["price: half of them are above 80 EUR for a kilowatt-hour; .* price.unit"],
        ),
        ("price", (0.09, 0.08, -0.005, 9), "EUR", []),
        ("price", (9e-5, 8e-5), "GBP", ["the highest is 9e-05 GBP"]),
        ("price", (30, 20), "JPY", []),
        ("price", (9000, 8000), "JPY", ["half of them are above 8500 JPY"]),
    ],
)
def test_values_that_no_grid_has_are_warned_of(tmp_path, table, values, currency, doubts):
    path = hourly(tmp_path, hours=range(len(values)), value=lambda zone, hour: values[hour])
    lines = [*unusual(table, signal("csv", table=table, path=path), currency)]
    assert len(lines) == len(doubts) and all(map(re.search, doubts, lines)), lines


def test_gaps_are_bridged_as_far_as_the_input_says(tmp_path):
    path = hourly(tmp_path, hours=[*range(5), *range(9, 20)])
    grid = signal("csv", path=path)
    assert [grid.at(3600.0 * h)[0] for h in (4, 7, 9)] == [4, 4, 9]
    problem = "no value of A for 5 h after 2022-01-01T04:00:00 UTC.*longest_gap_s"
    with pytest.raises(InputError, match=problem):
        signal("csv", path=path, longest_gap_s="4 h")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("2022-01-01,1\n", "holds 1 values of A"),
        ("2022-01-01,1\n2022-01-01,2\n", "holds 1 and 2 of A at 2022-01-01T00:00:00"),
        ("2022-01-01,1\n2022-01-01,1\n", "holds 1 values of A"),
        ("", "holds no values"),
        ("2022-01-01,1\nyesterday,2\n", "line 3: time = 'yesterday' is not a time such as"),
        ("2022-01-01,1\n2022-01-01T01:00,-2\n", "line 3: per_kwh = '-2' is outside 0 to 1e"),
    ],
)
def test_rows_that_cannot_be_are_refused(tmp_path, rows, problem):
    (tmp_path / "A.csv").write_text("time,per_kwh\n" + rows)
    with pytest.raises(InputError, match=problem):
        signal("csv", path=str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"timezone": "Europe/Madird"}, "is not a time zone"),
        ({"timezone": "../../etc/passwd"}, "is not a time zone"),
        ({"start": "noon"}, "'noon' is not a time such as"),
    ],
)
def test_keys_that_cannot_be_are_refused(keys, problem):
    class Root(Component):
        carbon: SIGNALS.field() = None

    with pytest.raises(InputError, match=problem):
        validate({"carbon": {"kind": "csv", "path": "x"} | keys}, Root)


def test_zones_without_a_common_time_are_refused(tmp_path):
    hourly(tmp_path, "A")
    hourly(tmp_path, "B", hours=range(100, 120))
    with pytest.raises(InputError, match="its series have no time in common"):
        signal("csv", path=str(tmp_path))
    with pytest.raises(InputError, match="names no file"):
        signal("csv", path=str(tmp_path / "*.txt"))


# Electricity Maps


def electricity_maps(path, unit="gCO₂eq/kWh", old=True):
    """Two hours of two zones in one file, in the wording of 2022 or of later years."""
    rows = [f"2022-01-01 0{h}:00:00,X,{z},{10 * h},{10 * h + 5},estimated" for z in "AB" for h in range(2)]
    zone, intensity, cycle = ("Id", "Intensity", "LCA") if old else ("id", "intensity", "Life cycle")
    values = f"Carbon {intensity} {unit} (direct),Carbon {intensity} {unit} ({cycle})"
    header = f"Datetime (UTC),Country,Zone {zone},{values},Data Source"
    path.write_bytes(gzip.compress("\n".join([header, *rows]).encode()))
    return str(path)


@pytest.mark.parametrize("old", [True, False])
def test_electricity_maps_files_are_read_as_they_come(tmp_path, old):
    path = electricity_maps(tmp_path / "2022.csv.gz", old=old)
    grid = signal("electricity-maps", path=path)
    assert grid.names == ["A", "B"] and grid.at(3600.0).tolist() == [15] * 20
    assert signal("electricity-maps", path=path, intensity="direct").at(3600.0).tolist() == [10] * 20


def test_other_units_and_other_files_are_refused(tmp_path):
    for unit in ("lbCO₂eq/MWh", "kgCO₂eq/kWh"):
        path = electricity_maps(tmp_path / "x.csv.gz", unit=unit)
        with pytest.raises(InputError, match="is not in gCO2eq/kWh"):
            signal("electricity-maps", path=path)
    with pytest.raises(InputError, match="has no columns of a carbon intensity"):
        signal("electricity-maps", path=hourly(tmp_path))


@pytest.mark.skipif(not GRID.is_dir(), reason="no files in ../shared/data/grid/carbon")
def test_the_real_files_of_2022_are_whole():
    grid = signal("electricity-maps", path=str(GRID / "*_2022_hourly.csv.gz"))
    assert grid.names == ["BR", "ES", "NO", "US-CAL-CISO"]
    for name, series in zip(grid.names, grid.series, strict=True):
        with gzip.open(GRID / f"{name}_2022_hourly.csv.gz", "rt") as file:
            column = [float(row["Carbon Intensity gCO₂eq/kWh (LCA)"]) for row in csv.DictReader(file)]
        assert series.value.tolist() == column
    assert {len(series.value) for series in grid.series} == {8760}


# Great Britain


def half_hours(*intensities):
    return [
        {"from": f"2018-01-20T12:{30 * i:02}Z", "to": "", "intensity": {"index": "low"} | intensity}
        for i, intensity in enumerate(intensities)
    ]


def test_answers_of_the_uk_carbon_intensity_api_are_read_as_they_come(tmp_path):
    rows = half_hours({"forecast": 266, "actual": 263}, {"forecast": 270, "actual": None})
    (tmp_path / "gb.json").write_text(json.dumps({"data": rows}))
    path = str(tmp_path / "gb.json")
    grid = signal("uk-carbon-intensity", path=path)
    assert grid.names == ["GB"] and [grid.at(1800.0 * i)[0] for i in range(2)] == [263, 270]
    assert signal("uk-carbon-intensity", path=path, value="forecast").at(0.0)[0] == 266
    with pytest.raises(InputError, match="holds 1 values of GB"):
        signal("uk-carbon-intensity", path=path, value="actual")


def test_an_actual_intensity_replaces_the_forecast_of_another_answer(tmp_path):
    first = half_hours({"forecast": 130, "actual": 131}, {"forecast": 137, "actual": None})
    second = half_hours({}, {"forecast": 137, "actual": 150}, {"forecast": 140, "actual": 141})[1:]
    second[1]["from"] = "2018-01-20T13:00Z"
    for name, answer in (("1.json", first), ("2.json", second)):
        (tmp_path / name).write_text(json.dumps({"data": answer}))
    grid = signal("uk-carbon-intensity", path=str(tmp_path))
    assert grid.series[0].value.tolist() == [131, 150, 141]
    assert signal("uk-carbon-intensity", path=str(tmp_path), value="forecast").at(1800.0)[0] == 137
    second[0]["intensity"]["actual"] = None
    second[0]["intensity"]["forecast"] = 138
    (tmp_path / "2.json").write_text(json.dumps({"data": second}))
    with pytest.raises(
        InputError, match="holds 137 and 138 of GB at 2018-01-20T12:30:00 UTC; keep one of them"
    ):
        signal("uk-carbon-intensity", path=str(tmp_path))


def test_a_region_has_its_name_and_forecasts(tmp_path):
    rows = half_hours({"forecast": 100}, {"forecast": 200})
    region = {"data": [{"regionid": 12, "shortname": "South England", "data": rows}]}
    (tmp_path / "region.json").write_text(json.dumps(region))
    grid = signal("uk-carbon-intensity", path=str(tmp_path / "region.json"))
    assert grid.names == ["South England"] and grid.at(0.0)[0] == 100


def regions(*rows):
    """An answer of /regional/intensity/{from}/{to}: rows of (regionid, shortname, forecast) for every half hour."""
    data = half_hours(*[{} for _ in rows])
    for half_hour, row in zip(data, rows, strict=True):
        half_hour["regions"] = [
            {"regionid": number, "shortname": name, "intensity": {"forecast": forecast, "index": "low"}}
            for number, name, forecast in row
        ]
    return {"data": data}


def test_an_answer_for_all_regions_has_a_zone_for_each_that_does_not_overlap_others(tmp_path):
    noon = [(1, "North Scotland", 10), (13, "London", 200), (16, "Scotland", 20), (18, "GB", 150)]
    later = [(1, "North Scotland", 12), (13, "London", 190), (16, "Scotland", 22), (18, "GB", 140)]
    (tmp_path / "gb.json").write_text(json.dumps(regions(noon, later)))
    grid = signal("uk-carbon-intensity", path=str(tmp_path / "gb.json"))
    assert grid.names == ["London", "North Scotland"]
    assert [series.value.tolist() for series in grid.series] == [[200, 190], [10, 12]]


def test_the_csv_files_of_carbonintensity_org_uk_are_read_by_their_columns(tmp_path):
    (tmp_path / "gb.csv").write_text(
        "Datetime (UTC),Actual Carbon Intensity (gCO2/kWh),Forecast Carbon Intensity (gCO2/kWh),Index\n"
        "2024-01-01T00:00Z,120,125,moderate\n2024-01-01T00:30Z,118,122,moderate\n"
    )
    columns = {"time_column": "Datetime (UTC)", "value_column": "Actual Carbon Intensity (gCO2/kWh)"}
    grid = signal("csv", path=str(tmp_path / "gb.csv"), unit="per kWh", **columns)
    assert [grid.at(1800.0 * i)[0] for i in range(2)] == [120, 118]


NO_ANSWER = r"gb\.json': is not an answer of api\.carbonintensity"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("<html>", NO_ANSWER),
        ({"error": {"code": "400"}}, NO_ANSWER),
        ({"data": [3, 4]}, NO_ANSWER),
        ({"data": [{"from": "noon", "intensity": {}}, {}]}, NO_ANSWER),
        ({"data": [{"from": "2018-01-20T12:00Z", "regions": 3}]}, NO_ANSWER),
        ({"data": half_hours({"actual": "low"}, {})}, NO_ANSWER),
        ({"data": []}, "holds no values"),
        (regions([(16, "Scotland", 20)]), "holds no values"),
        ({"data": half_hours({"actual": 1e300}, {"actual": 1})}, r"holds 1e\+300 of GB"),
    ],
)
def test_answers_without_usable_values_are_refused(tmp_path, answer, problem):
    (tmp_path / "gb.json").write_text(answer if isinstance(answer, str) else json.dumps(answer))
    with pytest.raises(InputError, match=problem):
        signal("uk-carbon-intensity", path=str(tmp_path / "gb.json"))
