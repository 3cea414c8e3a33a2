"""Warnings of power and events that have no effect, in worlds of three sites whose machines draw 44 kW each."""

import pytest
from worlds import world

from hpctrip.sim import plausible
from hpctrip.sim.availability import AVAILABILITY
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.sites import CsvSites

HOURLY = "time,a_kw,b_kw,c_kw\n2026-03-02 00:00,{},{},{}\n2026-03-02 01:00,{},{},{}\n"


@pytest.fixture
def warned(tmp_path):
    """`warned(sites, power, events, **keys)`: the warnings of power and events, where each is the text of a file."""

    def read(sites, power=None, events=None, reach_s=None, at_end="wrap", **tables):
        (tmp_path / "sites.csv").write_text(sites)
        if power:
            (tmp_path / "power.csv").write_text(power)
            tables["power"] = POWER_MODELS["csv"](path=str(tmp_path / "power.csv"), at_end=at_end)
        if events:
            (tmp_path / "events.csv").write_text(events)
            tables["availability"] = {"dr": AVAILABILITY["events"](path=str(tmp_path / "events.csv"))}
        made = world(CsvSites(path=str(tmp_path / "sites.csv")), **tables)
        return [line for line in plausible.warnings(made, reach_s) if line.startswith(("power", "avail"))]

    return read


SITES = "name,distance_km,gpus,contract_mw\na,5,{0},0.1\nb,5,{0},0.1\nc,5,{1},0.1\n"
NAMED = "name,distance_km\na,5\nb,5\nc,5\n"


@pytest.mark.parametrize(
    ("sites", "power", "expected"),
    [
        # the contract is 100 kW: 200 GPUs draw 88 kW, 10 GPUs 4.4 kW
        (SITES.format(200, 200), HOURLY.format(90, 80, 80, 90, 90, 90), ""),
        (SITES.format(10, 200), HOURLY.format(90, 5, 80, 80, 50, 90), "2 of 3 sites, such as site 0 (a)"),
        (SITES.format(10, 10), HOURLY.format(90, 4, 90, 90, 90, 4), ""),
        (SITES.format(200, 10), HOURLY.format(80, 80, 80, 90, 90, 90), ""),
        (SITES.format(10, 10), None, "gets at least 100 kW and draws at most 4.4 kW; check power.unit"),
        # without a contract, or with one below what is drawn, P is 1 throughout
        (NAMED, HOURLY.format(*[25e3] * 6), "3 of 3 sites, such as site 0 (a), which gets at least 25 MW"),
        (SITES.format(900, 900), HOURLY.format(*[25e3] * 6), "at least 25 MW and draws at most 100 kW"),
        (NAMED, HOURLY.format(44, 44, 30, 44, 20, 44), ""),
        (NAMED, None, ""),
    ],
)
def test_power_that_limits_hardly_any_site_is_warned_of(warned, sites, power, expected):
    lines = warned(sites, power)
    assert (len(lines) == 1 and expected in lines[0]) if expected else not lines


def test_power_that_changes_little_by_little_is_looked_at_beyond_its_first_step():
    supply = POWER_MODELS["trace"]().supply(3, 0)
    every = [supply.at(step * supply.step_s) for step in range(40)]
    assert (supply.least() <= every).all()
    assert (super(type(supply), supply).least() <= every).all()  # of a supply that does not tell it


DAY = HOURLY.format(90, 90, 90, 60, 90, 90)
EVENTS = "site,{},duration_s,depth\n"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (EVENTS.format("start_s") + "a,3600,3600,0.5\n", ""),  # 30 of 44 kW
        (
            EVENTS.format("start_s") + "b,0,3600,0.5\na,0,3600,0.5\na,3600,60,0.5\n",
            "availability.dr: events that slow no site: 2 of 3, such as that of 0 h (2026-03-02T00:00:00 UTC) at site "
            "1 (b), which then has 45 kW instead of 90 kW, and draws at most 44 kW",
        ),
        (EVENTS.format("start_s") + "b,0,3601,0.5\na,0,3601,0.5\n", "slow no site: 1 of 2"),
        (EVENTS.format("start_s") + "b,0,3600,1\n", ""),
        (
            EVENTS.format("start") + "b,2026-04-02 03:00,3600,1\n",
            "availability.dr: events that begin too late: 1 of 1, such as that of 747 h (2026-04-02T03:00:00 UTC) at "
            "site 1 (b); the data end at 2 h (2026-03-02T02:00:00 UTC)",
        ),
    ],
)
def test_events_that_slow_no_site_or_come_after_the_data_are_warned_of(warned, events, expected):
    sites = "name,distance_km,contract_mw\na,5,0.09\nb,5,0.09\nc,5,0.09\n"
    lines = [line for line in warned(sites, DAY, events) if "events" in line]
    assert lines == [expected] if expected.startswith("avail") else all(expected in line for line in lines)
    assert len(lines) == bool(expected)


def test_events_beyond_all_that_the_run_can_reach_are_warned_of(warned):
    rows = EVENTS.format("start_s") + "0,7200,60,1\n1,600,60,1\n"
    assert not warned("distance_km\n5\n5\n", None, rows)
    (line,) = warned("distance_km\n5\n5\n", None, rows, 3600.0)
    assert line == (
        "availability.dr: events that begin too late: 1 of 2, such as that of 2 h at site 0; "
        "the run ends at about 1 h"
    )


def test_an_event_may_come_after_the_first_pass_of_data_without_dates(warned):
    day, rows = "time_s,a_kw,b_kw\n0,30,30\n3600,20,20\n", EVENTS.format("start_s") + "0,72000,60,0.5\n"
    assert not warned("distance_km\n5\n5\n", day, rows)
    (line,) = warned("distance_km\n5\n5\n", day, rows, at_end="raise")
    assert "begin too late: 1 of 1" in line and line.endswith("the data end at 2 h")


def test_dates_of_prices_bound_events_too(warned, tmp_path):
    (tmp_path / "prices.csv").write_text("time,per_kwh\n2026-03-02 00:00,0.1\n2026-03-02 01:00,0.2\n")
    price = SIGNALS["csv"](path=str(tmp_path / "prices.csv"), unit="per kWh")
    (line,) = warned("distance_km\n5\n5\n", None, EVENTS.format("start") + "0,2026-03-03,60,1\n", price=price)
    assert "that of 24 h (2026-03-03T00:00:00 UTC) at site 0; the data end at 2 h" in line
