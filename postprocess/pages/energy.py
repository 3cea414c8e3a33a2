"""Numbers of the page of energy, from the rows of the study `energy`: one per run and account of waiting sites."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from hpctrip.base.stats import Estimate, on_front
from hpctrip.base.units import HOUR_S
from pages import table

PAGES = ("docs/results/energy.md",)
QUOTED_ON = ()
END = "## Repeat"
STATED = frozenset({"95 %", "45 %", "0.23", "0.39", "0.20", "0.9"})
"""The target, spare power, price, and eta."""
IDLE, RELEASED = "idle", "released"
"""Whether a finished site is billed at idle power while it waits for the slowest one."""
POWERTRIP, MEASURED = "PowerTrip", "PowerTrip, measured gain"
ZEUS, RELATIVE = "energy (Zeus, eta 0.9)", "energy (relative gain)"
CARBON, BUDGET = "carbon within 70 min", "time within 300 kWh"
FEDZERO, CLEAN = "FedZero", "FedZero, at most 150 g/kWh"
PAIRS = {
    "measured": (MEASURED, POWERTRIP),
    "zeus": (ZEUS, MEASURED),
    "zeus to powertrip": (ZEUS, POWERTRIP),
    "zeus to ten": (ZEUS, "static 10"),
    "carbon": (CARBON, MEASURED),
    "carbon to clean": (CARBON, CLEAN),
    "budget": (BUDGET, MEASURED),
    "clean": (CLEAN, FEDZERO),
    "clocks": ("PowerTrip, least-energy clocks", POWERTRIP),
}
"""{name on the page: (policy, the one that it is compared with)}."""
DEADLINE_S = 4200.0
COLUMNS = {"time": "clock_s", "kwh": "energy_kwh", "kg": "carbon_kg"}
HEAD = ("policy or objective", "hours", "kWh", "kWh, released", "kg CO2", "g/kWh", "sites", "")

ByPolicy = dict[str, pd.DataFrame]


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    runs = pd.read_csv(results / "energy.csv")
    by_policy = {
        waiting: {policy: own.set_index("seed") for policy, own in rows.groupby("policy", sort=False)}
        for waiting, rows in runs.groupby("waiting")
    }
    idle, released = by_policy[IDLE], by_policy[RELEASED]
    texts = {"table": table(HEAD, _rows(idle, released))}
    for name, (one, other) in PAIRS.items():
        for quantity, column in COLUMNS.items():
            texts[f"{name} {quantity}"] = _ratio(idle[one], idle[other], column)
    last, many, few = idle[RELATIVE], idle["static 70"], idle["static 10"]
    return texts | {
        "projected": f"{70 / math.log(71) * math.log(11) / 10:.1f}",  # k / ln(1 + k), Algorithm 1
        "rounds of 70": f"{many['num_rounds'].mean():.0f}",
        "rounds of 10": f"{few['num_rounds'].mean():.0f}",
        "relative missed": f"{int(last['time_to_accuracy_s'].isna().sum())} of {len(last)}",
        "deadline met": f"{int((idle[CARBON]['clock_s'] <= DEADLINE_S).sum())} of {len(idle[CARBON])}",
        "most within budget": f"{idle[BUDGET]['energy_kwh'].max():.0f}",
        "most without budget": f"{idle[MEASURED]['energy_kwh'].max():.0f}",
        "saved by release": _span([1 - _kwh(released[name]) / _kwh(idle[name]) for name in idle]),
    }


def _rows(idle: ByPolicy, released: ByPolicy) -> list[tuple[str, ...]]:
    hours = np.array([_hours(own) for own in idle.values()])
    fronts = {
        "front": on_front(np.array([_kwh(own) for own in idle.values()]), hours),
        "front (released)": on_front(np.array([_kwh(released[name]) for name in idle]), hours),
        "front (carbon)": on_front(np.array([own["carbon_kg"].mean() for own in idle.values()]), hours),
    }
    return [
        (
            name,
            ("> " if np.isnan(hours[i]) else "") + _mean(own["clock_s"] / HOUR_S, "{:.2f}"),
            _mean(own["energy_kwh"], "{:.0f}"),
            _mean(released[name]["energy_kwh"], "{:.0f}"),
            _mean(own["carbon_kg"], "{:.1f}"),
            f"{1e3 * own['carbon_kg'].sum() / own['energy_kwh'].sum():.0f}",
            f"{own['mean_sites'].mean():.0f}",
            ", ".join(front for front, is_on in fronts.items() if is_on[i]),
        )
        for i, (name, own) in enumerate(idle.items())
    ]


def _hours(runs: pd.DataFrame) -> float:
    """The mean time to the target; NaN where a seed did not reach it."""
    return float(runs["time_to_accuracy_s"].mean(skipna=False)) / HOUR_S


def _kwh(runs: pd.DataFrame) -> float:
    return float(runs["energy_kwh"].mean())


def _mean(by_seed: pd.Series, form: str) -> str:
    """Mean and half of its 95 % interval."""
    mean = Estimate.mean(by_seed)
    return f"{form.format(mean.value)} ± {form.format(mean.high - mean.value)}"


def _ratio(one: pd.DataFrame, other: pd.DataFrame, column: str) -> str:
    """Geometric mean of the ratios of the seeds."""
    return Estimate.geometric_mean(one[column] / other[column]).text("{:.2f}")


def _span(shares: list[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}".replace("%", " %")
