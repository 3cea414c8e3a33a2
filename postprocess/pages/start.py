"""Numbers of the page about when to start, from the rows of the study `when_to_start_real`: one per run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hpctrip.base.stats import Estimate
from hpctrip.base.units import HOUR_S
from pages import table

PAGES = ("docs/questions/when_to_start.md",)
QUOTED_ON = ()
END = "## Repeat it"
STATED = frozenset({"95 %", "45 %"})
HEAD = ("start, UTC", "15 January: hours", "kg CO2", "15 July: hours", "kg CO2")
QUANTITIES = {"time": "clock_s", "kg": "carbon_kg"}


def values(results: Path) -> dict[str, str]:
    """{name: text}."""
    runs = pd.read_csv(results / "start" / "when_to_start_real.csv")
    by_start = {start: own.set_index("seed") for start, own in runs.groupby("start", sort=False)}
    days = {day: [start for start in by_start if day in start] for day in ("Jan", "Jul")}
    texts = {"table": table(HEAD, [_row(by_start, starts) for starts in zip(*days.values(), strict=True)])}
    for day, starts in days.items():
        for quantity, column in QUANTITIES.items():
            means = {start: by_start[start][column].mean() for start in starts}
            best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
            ratios = by_start[worst][column] / by_start[best][column]
            texts |= {
                f"{day} {quantity} best": best.split()[-1],
                f"{day} {quantity} worst": worst.split()[-1],
                f"{day} {quantity}": Estimate.geometric_mean(ratios).text("{:.2f}"),
            }
    return texts


def _row(by_start: dict[str, pd.DataFrame], starts: tuple[str, ...]) -> tuple[str, ...]:
    cells = [starts[0].split()[-1]]
    for runs in (by_start[start] for start in starts):
        cells += [f"{runs['clock_s'].mean() / HOUR_S:.2f}", f"{runs['carbon_kg'].mean():.1f}"]
    return tuple(cells)
