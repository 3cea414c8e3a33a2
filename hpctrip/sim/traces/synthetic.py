"""Synthetic power traces in the shape of Google's PowerData2019, for those who have no copy.

As in the real set (compared in tests/sim/test_traces.py of the source tree): the 10 cells and 57 domains; the range of
the cells' mean production utilisation, 49 % to 74 %; the movement of a domain in time, and of domains together. Made
up: everything else, above all which cell has which mean.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.base.rng import stream
from hpctrip.sim.series import Series
from hpctrip.sim.traces.files import TRACE_START_US

STEP_S = 300
NUM_STEPS = 31 * 24 * 3600 // STEP_S
"""One month, 2019-05: 8928 rows per domain."""

CELLS: dict[str, tuple[list[str], float]] = {
    "a": ([f"pdu{n}" for n in range(6, 11)], 0.61),
    "b": ([f"pdu{n}" for n in range(11, 16)], 0.55),
    "c": ([f"pdu{n}" for n in range(38, 44)], 0.64),
    "d": ([f"pdu{n}" for n in range(32, 38)], 0.58),
    "e": ([f"pdu{n}" for n in range(26, 32)], 0.495),
    "f": ([f"pdu{n}" for n in range(16, 26)], 0.60),
    "g": ([f"pdu{n}" for n in range(1, 6)], 0.67),
    "h": ([f"pdu{n}" for n in range(44, 56)], 0.56),
    "i": (["mvpp1"], 0.70),
    "j": (["mvpp2"], 0.735),
}
"""{cell: (its domains, as in the real set; mean production utilisation)}.

Of the means, cell a's (0.605 and 0.613 for two of its domains) and the range of all ten are Google's; the others are
made up within that range.
"""


def synthetic_table(seed: int, num_days: float = 31) -> pd.DataFrame:
    """The first `num_days` of a synthetic month, in the columns of the official files; utilisations to 3 decimals."""
    names, cells, util = _month(seed)
    num_steps = min(NUM_STEPS, round(num_days * 24 * 3600 / STEP_S))
    time = TRACE_START_US + np.arange(num_steps) * STEP_S * 1_000_000
    return pd.DataFrame(
        {
            "time": np.tile(time, len(names)),
            "cell": np.repeat(cells, num_steps),
            "pdu": np.repeat(names, num_steps),
            "measured_power_util": util["measured"][:, :num_steps].ravel(),
            "production_power_util": util["production"][:, :num_steps].ravel(),
            "bad_measurement_data": False,
            "bad_production_power_data": False,
        }
    )


@lru_cache(maxsize=1)  # making it takes 0.1 s, and runs of a study share it
def synthetic_traces(seed: int, column: str = "production") -> Series:
    """One synthetic month of all 57 domains: what reading the files of `synthetic_table(seed)` would give."""
    names, cells, util = _month(seed)
    util[column].flags.writeable = False
    step_us = STEP_S * 1_000_000
    return Series(
        names=[f"cell{cell}_{pdu}" for cell, pdu in zip(cells, names, strict=True)],
        time_us=TRACE_START_US + np.arange(NUM_STEPS) * step_us,
        end_us=TRACE_START_US + NUM_STEPS * step_us,
        step_us=step_us,
        value=util[column],
        is_dated=False,
        synthetic=True,
        cells=cells,
    )


def _month(seed: int) -> tuple[list[str], list[str], dict[str, np.ndarray]]:
    """Domains, their cells, and {"production", "measured"} utilisation [D, T].

    Measured power is production plus a share of about 0.10 (batch work, cooling) that does most of the moving, as
    in the real cell a: measured wanders by 0.02, production by 0.007. Both are a mean, a daily cycle, a slow drift
    over days and a fast part over about an hour; cells are nearly independent, domains of a cell nearly alike.
    """
    rng = stream(seed, "synthetic-traces")
    names = [pdu for pdus, _ in CELLS.values() for pdu in pdus]
    cells = [cell for cell, (pdus, _) in CELLS.items() for _ in pdus]
    cell = np.repeat(np.arange(len(CELLS)), [len(pdus) for pdus, _ in CELLS.values()])
    cell_mean = np.array([mean for _, mean in CELLS.values()])

    # Each of variance 1: the fleet's demand and the cell's own; 0.85 of a domain's fast part is its cell's.
    drift = 0.8 * _wander(rng, 1, memory_h=48) + 0.6 * _wander(rng, len(CELLS), memory_h=48)
    daily = _daily(rng, len(CELLS))
    fast = 0.92 * _wander(rng, len(CELLS), memory_h=0.65)[cell] + 0.39 * _wander(
        rng, len(cell), memory_h=0.65
    )
    size = rng.uniform(0.8, 1.2, len(CELLS))

    def level(of_cell: np.ndarray, spread: float) -> np.ndarray:
        return (of_cell[cell] + _centred(rng.normal(0, spread, len(cell)), cell))[:, None]

    def movement(daily_std: float, drift_std: float, fast_std: float) -> np.ndarray:
        return size[cell, None] * (daily_std * daily[cell] + drift_std * drift[cell] + fast_std * fast)

    production = level(cell_mean, 0.008) + movement(0.005, 0.005, 0.003)
    rest = level(rng.normal(0.10, 0.008, len(CELLS)), 0.005) + movement(0.009, 0.007, 0.010)
    # a part is less than all
    util = {"production": production, "measured": production + np.maximum(rest, 0.015)}
    return names, cells, {column: np.clip(values, 0, 1).round(3) for column, values in util.items()}


def _wander(rng: np.random.Generator, num: int, memory_h: float) -> np.ndarray:
    """[num, T] wandering signals of mean 0 and variance about 1 that forget within `memory_h` hours.

    A first-order autoregression, kicked now and then harder than a normal distribution allows (Student's t), averaged
    over two steps as a meter does. The average gives the increments of five-minute values their lag-1
    autocorrelation of nearly one half.
    """
    keep = np.exp(-STEP_S / 3600 / memory_h)
    kicks = rng.standard_t(4, (NUM_STEPS + 1, num)) * np.sqrt((1 - keep**2) / 2)  # t(4) has variance 2
    kicks[0] /= np.sqrt(1 - keep**2)
    for before, now in pairwise(kicks):
        now += keep * before
    signal = (kicks[1:] + kicks[:-1]).T / 2
    return signal - signal.mean(axis=1, keepdims=True)


def _daily(rng: np.random.Generator, num: int) -> np.ndarray:
    """[num, T] daily cycles of variance 1, highest at about 10:30 Pacific time, half as strong at weekends."""
    hour = np.arange(NUM_STEPS) * STEP_S / 3600
    angle = 2 * np.pi * (hour - 10.5 - rng.normal(0, 1, (num, 1))) / 24
    cycle = np.cos(angle) + 0.25 * np.cos(2 * angle)
    weekend = (2 + hour // 24) % 7 > 4  # 2019-05-01 was a Wednesday
    cycle = cycle * np.where(weekend, 0.5, 1.0)
    return (cycle - cycle.mean(axis=1, keepdims=True)) / cycle.std(axis=1, keepdims=True)


def _centred(offsets: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Domain offsets [D] that sum to 0 within each cell, so that the cell means stay what CELLS says."""
    return offsets - (np.bincount(cell, offsets) / np.bincount(cell))[cell]
