"""Numbers of the page about rounds that do not wait, from the rows of docs/results/waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from hpctrip.base.stats import Estimate
from hpctrip.base.units import HOUR_S
from pages import table

PAGES = ("docs/questions/waiting.md",)
QUOTED_ON = ()
END = "## Repeat it"
STATED = frozenset({"95 %", "25 %", "0.7", "0.4", "0.468", "2.024", "14.6", "1.38", "97 %", "5 %"})
FIXED = ("static-", "random-")
"""Beginnings of the labels of fixed numbers of sites: those of most power, and random ones."""
TUNED = "tuned-"
"""Beginning of the names of the worlds on which constants were chosen."""
QUANTITIES = {"time": "end_s", "energy": "energy_kwh", "CO2": "carbon_kg"}
OF_PILOT = ("run", "hours", "kWh", "kg CO2", "energy below 100 g/kWh")
OF_EVENT = ("kind of rounds", "policy", "drew in the event", "MWh shed", "hours lost", "of")


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    folder = results / "waiting"
    runs, real = (_read(folder / f"{name}.csv") for name in ("waiting", "waiting_real"))
    judged = runs[~runs["scenario"].str.startswith(TUNED)]
    best = {world: _best_fixed(own) for world, own in judged.groupby("scenario", sort=False)}
    methods = [name for name in judged["method"].unique() if not name.startswith(FIXED)]
    ratios = {
        (name, quantity): _ratio(judged, name, best, column)
        for name in methods
        for quantity, column in QUANTITIES.items()
    }
    head = (
        "",
        *(f"{quantity} over the best fixed number (95 %)" for quantity in QUANTITIES),
        "missed the target",
    )
    rows = [
        (name, *(ratios[name, quantity].text("{:.2f}") for quantity in QUANTITIES), _missed(judged, name))
        for name in methods
    ]
    texts = {
        "judged": table(head, rows),
        "hours": _table_of_hours(judged),
        "tuned hours": _table_of_hours(runs[runs["scenario"].str.startswith(TUNED)]),
        "event": table(OF_EVENT, _event_rows(pd.read_csv(folder / "curtail.csv"))),
        "real": _table_of_ratios(real),
        "seeds": str(judged["seed"].nunique()),
        "pilot": table(OF_PILOT, map(_pilot, pd.read_csv(folder / "pilot.csv").itertuples(index=False))),
    }
    faster = ratios["buffered", "time"].by_seed
    pilot = pd.read_csv(folder / "pilot.csv").set_index("run")["kg"]
    return (
        texts
        | {f"{name} {quantity}": ratio.text("{:.2f}") for (name, quantity), ratio in ratios.items()}
        | {f"kg, {name}": f"{kg:.1f}" for name, kg in pilot.items()}
        | {"buffered by world": f"{faster.min():.2f} to {faster.max():.2f}"}
    )


def _read(path: Path) -> pd.DataFrame:
    """The ledger of a study, with whether each run reached its target."""
    runs = pd.read_csv(path).rename(columns={"policy": "method"})
    return runs.assign(reached=runs["accuracy"] >= runs["target_accuracy"])


def _table_of_ratios(runs: pd.DataFrame) -> str:
    """For each method and world, the geometric mean over seeds of the time over that of the best fixed number."""
    worlds = {
        str(world): own.set_index("seed").sort_index() for world, own in runs.groupby("scenario", sort=False)
    }
    fixed = {world: _best_fixed(own) for world, own in worlds.items()}
    methods = [name for name in runs["method"].unique() if not name.startswith(FIXED)]

    def ratio(name: str, world: str) -> str:
        own, other = (worlds[world][worlds[world]["method"] == each] for each in (name, fixed[world]))
        bounds = ([*~each["reached"]] for each in (own, other))
        return Estimate.geometric_mean([*(own["end_s"] / other["end_s"])], *bounds).text("{:.2f}")

    head = ("time over the best fixed number", *(f"{world} ({fixed[world]})" for world in worlds), "missed")
    return table(
        head, [(name, *(ratio(name, world) for world in worlds), _missed(runs, name)) for name in methods]
    )


def _best_fixed(runs: pd.DataFrame) -> str:
    """The fixed number of a world that misses the fewest targets, and of these takes the least time."""
    fixed = runs[runs["method"].str.startswith(FIXED)].groupby("method")
    return min(fixed.groups, key=lambda k: (-fixed["reached"].sum()[k], fixed["end_s"].mean()[k]))


def _ratio(runs: pd.DataFrame, method: str, best: dict[str, str], column: str) -> Estimate:
    """Geometric mean over worlds of the mean ratio of a method to the best fixed number, paired by seed."""
    by_run = runs.set_index(["scenario", "method", "seed"]).sort_index()
    pairs = [(by_run.loc[world, method], by_run.loc[world, fixed]) for world, fixed in best.items()]
    means = [np.exp(np.log((own[column] / other[column]).dropna()).mean()) for own, other in pairs]
    bounds = ([not each["reached"].all() for each in side] for side in zip(*pairs, strict=True))
    return Estimate.geometric_mean(means, *bounds)


def _missed(runs: pd.DataFrame, method: str) -> str:
    own = runs[runs["method"] == method]
    return f"{(~own['reached']).sum()} of {len(own)}"


def _table_of_hours(runs: pd.DataFrame) -> str:
    worlds = [*runs["scenario"].unique()]
    rows = [(name, *(_hours(runs, name, world) for world in worlds)) for name in runs["method"].unique()]
    return table(("hours to the target", *worlds), rows)


def _hours(runs: pd.DataFrame, method: str, world: str) -> str:
    """Mean hours of a method in a world; with the seeds that missed the target, whose time is a bound."""
    own = runs[(runs["method"] == method) & (runs["scenario"] == world)]
    if own.empty:
        return ""
    late = int((~own["reached"]).sum())
    return f"{own['end_s'].mean() / HOUR_S:.1f}" + (f" ({late} of {len(own)} not)" if late else "")


def _pilot(row: Sequence[float]) -> tuple[str, ...]:
    name, hours, kwh, kg, clean = row
    return str(name), f"{hours:.2f}", f"{kwh:.1f}", f"{kg:.2f}", f"{clean:.1%}".replace("%", " %")


def _event_rows(runs: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """For each kind of rounds and policy: mean over seeds, with intervals of the energy shed and the time lost."""
    for (kind, policy), own in runs.groupby(["kind", "policy"], sort=False):
        shed, lost = (Estimate.mean(own[name]).text("{:.2f}") for name in ("shed_mwh", "lost_h"))
        yield (
            kind,
            policy,
            f"{own['change'].mean():+.0%}".replace("%", " %"),
            shed,
            lost,
            f"{own['without_h'].mean():.1f}",
        )
