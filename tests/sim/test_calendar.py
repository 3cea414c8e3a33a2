"""All series with dates begin at one moment of simulated time, and start again together."""

import pytest
from worlds import world

from hpctrip.base.errors import InputError
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.power.traces import Trace


@pytest.fixture
def files(tmp_path):
    """`files(name, first, hours)`: a CSV signal of as many hours, whose values are the hours since 2022 began."""

    def write(name, first, hours, **keys):
        day, hour = map(int, first.split("T"))
        steps = range(24 * (day - 1) + hour, 24 * (day - 1) + hour + hours)
        rows = [f"2022-01-{1 + step // 24:02} {step % 24:02}:00,{step}" for step in steps]
        (tmp_path / f"{name}.csv").write_text("time,per_kwh\n" + "\n".join(rows))
        return SIGNALS["csv"](path=str(tmp_path / f"{name}.csv"), **keys)

    return write


def hours(built, table, *at):
    return [built.signals[table].at(3600.0 * hour)[0] for hour in at]


def test_two_signals_begin_at_the_first_moment_that_both_know(files):
    built = world(2, 1e6, carbon=files("carbon", "1T0", 48), price=files("price", "1T6", 48))
    assert hours(built, "carbon", 0, 1, 41, 42) == hours(built, "price", 0, 1, 41, 42) == [6, 7, 47, 6]
    assert built.start == [
        f"{table} 2022-01-01T06:00:00 UTC, data until 2022-01-03T00:00:00" for table in ("carbon", "price")
    ]


@pytest.mark.parametrize("named", ["carbon", "price"])
def test_a_moment_that_one_table_names_is_that_of_all(files, named):
    start = {"start": "2022-01-01T12:30+02:00"}
    built = world(
        2,
        1e6,
        carbon=files("carbon", "1T0", 48, **start if named == "carbon" else {}),
        price=files("price", "1T6", 48, **start if named == "price" else {}),
    )
    assert hours(built, "carbon", 0, 0.5, 37.5) == hours(built, "price", 0, 0.5, 37.5) == [10, 11, 6]


def test_tables_that_name_moments_of_their_own_keep_them(files):
    carbon, price = (
        files("carbon", "1T0", 24, start="2022-01-01T02:00"),
        files("price", "9T0", 24, start="2022-01-09"),
    )
    built = world(2, 1e6, carbon=carbon, price=price)
    assert hours(built, "carbon", 0, 21, 22) == [2, 23, 2] and hours(built, "price", 0, 21, 22) == [
        192,
        213,
        192,
    ]


def test_power_with_dates_begins_with_the_signals(files, tmp_path):
    rows = [f"2022-01-01 0{hour}:00,a,pdu1,0.{hour}" for hour in range(9)]
    (tmp_path / "cella.csv").write_text("datetime,cell,pdu,measured_power_util\n" + "\n".join(rows))
    keys = {"path": str(tmp_path / "cella.csv"), "column": "measured"}
    carbon = files("carbon", "1T3", 48)
    built = world(2, 1e6, power=Trace(offsets=False, **keys), carbon=carbon)
    assert built.power_fraction(0.0) == pytest.approx([0.7, 0.7])
    assert hours(built, "carbon", 0, 5, 6) == [3, 8, 3]
    assert [line.split(",")[0] for line in built.start] == [
        "power 2022-01-01T03:00:00 UTC",
        "carbon 2022-01-01T03:00:00 UTC",
    ]
    apart = world(2, 1e6, power=Trace(**keys), carbon=carbon)  # each site at a time of its own
    assert [line.split()[0] for line in apart.start] == ["carbon"]


@pytest.mark.parametrize(("column", "unit"), [("time_s", 1), ("time_ms", 1000), ("time_us", 10**6)])
def test_numbers_since_1970_are_dates_of_the_same_clock(files, tmp_path, column, unit):
    six = 1_641_016_800  # 2022-01-01T06:00 UTC
    rows = [f"{(six + 3600 * hour) * unit},{500 + hour}" for hour in range(24)]
    (tmp_path / "power.csv").write_text(f"{column},a_w\n" + "\n".join(rows))
    power = POWER_MODELS["csv"](path=str(tmp_path / "power.csv"))
    built = world(1, 1e6, power=power, carbon=files("carbon", "1T0", 48), price=files("price", "1T8", 48))
    assert hours(built, "carbon", 0, 1) == hours(built, "price", 0, 1) == [8, 9]
    assert built.supply.traces.value[0, 2] == 502
    assert [line[:29] for line in built.start if "power" in line] == ["power 2022-01-01T08:00:00 UTC"]
    number = SIGNALS["csv"](path=str(tmp_path / "power.csv"), value_column="a_w", unit="per kWh")
    assert hours(world(1, 1e6, carbon=number, price=files("price", "1T8", 48)), "carbon", 0) == [502]


@pytest.mark.parametrize(
    ("carbon", "price", "problem"),
    [
        (
            {},
            {},
            "carbon and price: have no time in common: carbon 2022-01-01T00:00:00 to .*carbon.start, price.start",
        ),
        (
            {"start": "2022-01-01T05:00"},
            {},
            "carbon.start = '2022-01-01T05:00:00': lies outside the data of price",
        ),
    ],
)
def test_data_without_a_common_time_are_refused(files, carbon, price, problem):
    with pytest.raises(InputError, match=problem):
        world(2, 1e6, carbon=files("carbon", "1T0", 24, **carbon), price=files("price", "9T0", 24, **price))


def test_the_end_of_the_shortest_data_is_that_of_all(files):
    carbon = files("carbon", "1T0", 48, at_end="raise")
    built = world(2, 1e6, carbon=carbon, price=files("price", "1T0", 24))
    with pytest.raises(InputError, match="simulated time 86400 s is past the end of the data, 86400 s"):
        built.signals["carbon"].at(86_400.0)
