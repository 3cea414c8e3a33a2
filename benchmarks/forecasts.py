"""Error of every forecast of a site's power, 5, 30 and 60 minutes ahead, on real or synthetic power traces.

    python benchmarks/forecasts.py [--path FOLDER] [--column measured] [--times 400]

Prints the mean over sites and times of |forecast - true mean power over the steps after the present one|, with the half
width of a 95 % interval (days are the units), and the same less persistence, paired. The profiler has observed every
five minutes since the trace began; times are drawn at random after the first week.
"""

from __future__ import annotations

import argparse

import numpy as np

from hpctrip.base.rng import stream
from hpctrip.sim.forecast import DAY_S, FORECASTS, Observations, newest_apart
from hpctrip.sim.power import POWER_MODELS

STEP_S, WEEK_S = 300.0, 7 * DAY_S
SPANS_S = (300.0, 1800.0, 3600.0)


def errors(power: np.ndarray, now: int, span_s: float) -> dict[str, float]:
    """{forecast: mean absolute error} at step `now` of observed fractions [m, N]."""
    times_s, steps = np.arange(now + 1) * STEP_S, round(span_s / STEP_S)
    true = power[now + 1 : now + 1 + steps].mean(0)

    def observed(span_s: float, apart_s: float) -> tuple[np.ndarray, np.ndarray]:
        kept = newest_apart(times_s, span_s, apart_s)
        return times_s[kept], power[kept]

    past = Observations(times_s[-1], power[now], observed, lambda start, end: true)
    found = {kind: FORECASTS[kind]().power_fraction(past, span_s) for kind in FORECASTS}
    return {kind: float(np.abs(value - true).mean()) for kind, value in found.items()}


def over_days(values: np.ndarray, days: np.ndarray) -> tuple[float, float]:
    """(mean, half width of its 95 % interval) of the daily means."""
    means = np.array([values[days == day].mean() for day in np.unique(days)])
    return means.mean(), 1.96 * means.std(ddof=1) / np.sqrt(len(means))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default="synthetic")
    parser.add_argument("--column", default="production", choices=["production", "measured"])
    parser.add_argument("--times", type=int, default=400)
    given = parser.parse_args()
    supply = POWER_MODELS["trace"](path=given.path, column=given.column).supply(num_sites=50, seed=0)
    traces = supply.traces
    power = np.stack([supply.at(step * STEP_S) for step in range(int(traces.duration_s // STEP_S))])
    first, last = int(WEEK_S // STEP_S), len(power) - int(SPANS_S[-1] // STEP_S)
    drawn = np.sort(stream(0, "forecast times").choice(np.arange(first, last), given.times, replace=False))
    days = drawn * STEP_S // DAY_S
    print(f"{'synthetic' if supply.synthetic else given.path}: {len(traces.names)} domains, 50 sites")
    print(f"{'ahead':>6}  {'forecast':12}  {'error':>7}  {'+-':>7}  {'less persistence':>16}  {'+-':>7}")
    for span_s in SPANS_S:
        found = [errors(power, now, span_s) for now in drawn]
        plain = np.array([error["persistence"] for error in found])
        for kind in sorted(FORECASTS):
            values = np.array([error[kind] for error in found])
            (mean, wide), (less, apart) = over_days(values, days), over_days(values - plain, days)
            print(f"{span_s / 60:3.0f} min  {kind:12}  {mean:7.4f}  {wide:7.4f}  {less:+16.4f}  {apart:7.4f}")


if __name__ == "__main__":
    main()
