"""Forecasts of the power of sites over the coming round."""

import numpy as np
import pytest
from worlds import played
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.sim.forecast import FORECASTS, Observations, newest_apart
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.step import State
from hpctrip.sim.timing import Timing

HOUR_S = 3600.0


def wave(times_s):
    """The power of two sites: one follows the hours of the day, the other has one half."""
    times_s = np.asarray(times_s, dtype=float)
    return np.stack([0.5 + 0.4 * np.sin(2 * np.pi * times_s / 86400), np.full(times_s.shape, 0.5)], -1)


def past(times_s):
    times_s = np.asarray(times_s, dtype=float)
    mean = lambda start_s, end_s: wave(np.linspace(start_s, end_s, 1001)).mean(0)  # noqa: E731

    def observed(span_s, apart_s):
        chosen_s = times_s[newest_apart(times_s, span_s, apart_s)]
        return chosen_s, wave(chosen_s)

    return Observations(times_s[-1], wave(times_s[-1]), observed, mean)


@pytest.mark.parametrize("kind", FORECASTS)
def test_a_forecast_is_a_power_fraction_of_every_site_already_at_the_first_round(kind):
    for seen in (past([0.0]), past(np.arange(0, 30) * HOUR_S)):
        forecast = FORECASTS[kind]().power_fraction(seen, 600.0)
        assert forecast.shape == (2,) and (forecast >= 0).all() and (forecast <= 1).all()
        assert forecast[1] == pytest.approx(0.5)


def test_smoothing_counts_an_observation_less_the_older_it_is():
    forecast = FORECASTS["exponential"](memory_s=HOUR_S).power_fraction(past([0.0, 6 * HOUR_S]), 1.0)
    weight = np.exp(-6)
    assert forecast[0] == pytest.approx((0.5 * weight + 0.9) / (1 + weight))


def test_the_daily_profile_learns_what_hours_bring_and_believes_nothing_before_a_day():
    """On the third morning power rises, as it did on the two before."""
    now_s = 2 * 86400 + 1.5 * HOUR_S
    seen, truth = past(np.arange(0, now_s + 1, HOUR_S / 2)), wave(now_s + HOUR_S)[0]
    errors = {
        kind: abs(FORECASTS[kind](**fields).power_fraction(seen, 2 * HOUR_S)[0] - truth)
        for kind, fields in [("persistence", {}), ("daily", {"weight": 1.0})]
    }
    assert errors["daily"] < 0.2 * errors["persistence"]
    young = past(np.arange(0, 6 * HOUR_S, HOUR_S))
    assert FORECASTS["daily"]().power_fraction(young, HOUR_S).tolist() == young.power.tolist()


def test_the_daily_profile_learns_from_days_of_short_rounds_too():
    """Observed every 40 seconds for three days: 6,480 times."""
    now_s = 3 * 86400 + 1.5 * HOUR_S
    seen, truth = past(np.arange(0, now_s + 1, 40.0)), wave(now_s + HOUR_S)[0]
    forecast = FORECASTS["daily"](weight=1.0).power_fraction(seen, 2 * HOUR_S)[0]
    assert abs(forecast - truth) < 0.2 * abs(seen.power[0] - truth)


def test_observations_are_those_of_late_that_lie_apart_and_the_newest_always():
    times_s = np.array([0.0, 50, 70, 80, 99, 100])
    assert newest_apart(times_s, 60.0, 15.0) == [1, 3, 5]
    assert newest_apart(times_s, 0.0, 1.0) == [5] and newest_apart(times_s, np.inf, 0.0) == [*range(6)]
    assert len(newest_apart(np.arange(5000.0), np.inf, 1.0)) == 1000


@pytest.fixture
def traced(simulation):
    """`traced(forecast)`: rounds of all of twelve sites on power that changes."""
    timing = Timing(seconds_per_sample=10.0)
    world = build_world(12, power=POWER_MODELS["trace"](), timing=timing, seed=4)
    return lambda forecast: simulation(world, forecast=FORECASTS[forecast]())


def test_a_policy_sees_the_forecast_and_its_error_is_recorded(traced):
    errors = {
        kind: [row.forecast_error for row in played(traced(kind), 6).history.rows] for kind in FORECASTS
    }
    assert len({tuple(of_kind) for of_kind in errors.values()}) >= 3
    # how long a round takes is not known before the first
    assert errors["oracle"][0] == errors["persistence"][0]
    assert np.mean(errors["oracle"][1:]) < 0.5 * np.mean(errors["persistence"][1:])


def test_the_mean_power_between_two_times_weighs_every_step_by_its_length(traced):
    world = traced("oracle").world
    first, second = world.power_fraction(0.0), world.power_fraction(300.0)
    assert world.mean_power_fraction(200.0, 500.0) == pytest.approx(first / 3 + 2 * second / 3)
    assert world.mean_power_fraction(10.0, 10.0).tolist() == first.tolist()
    assert world.mean_power_fraction(0.0, 30 * 86400.0).shape == (12,)


@pytest.mark.parametrize("kind", sorted(FORECASTS))
@pytest.mark.parametrize(("work_s", "ends_s"), [(1050, [1500]), (450, [900, 1350]), (600, [1050])])
def test_rounds_before_the_end_of_the_data_need_no_power_from_after_it(
    simulation, tmp_path, kind, work_s, ends_s
):
    """Half the power for 900 s, all of it for the last 600: rounds that end with the data, or as long before it as no
    round of the last one's length would."""
    rows = [f"{600_000_000 + 300_000_000 * i},a,p1,{0.5 * (i < 3)}" for i in range(5)]
    (tmp_path / "cella_p1.csv").write_text("time,cell,pdu,production_power_util\n" + "\n".join(rows))
    power = POWER_MODELS["trace"](path=str(tmp_path), at_end="raise", offsets=False)
    rounds = simulation(
        build_world(2, power=power, timing=Timing(seconds_per_sample=work_s / 100)),
        forecast=FORECASTS[kind](),
    )
    state = played(rounds, len(ends_s))
    assert [row.clock_s for row in state.history.rows] == pytest.approx(ends_s)
    if work_s < 600:
        assert (state.history.last.forecast_error == 0) == (kind in ("oracle", "persistence", "daily"))
    with pytest.raises(InputError, match="is past the end of a site's power trace, 1500 s"):
        played(rounds, 10, state=state)


def test_a_forecast_that_is_none_is_refused(traced, monkeypatch):
    monkeypatch.setattr(FORECASTS["daily"], "power_fraction", lambda self, past, span_s: past.power + 1)
    with pytest.raises(InputError, match=r"forecast.kind = 'daily'.*power fractions"):
        traced("daily").begin(State())
