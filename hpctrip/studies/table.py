"""Table of a study: time-to-accuracy of each variant over its seeds, and its ratio to the first variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from hpctrip.base.stats import Estimate, Times, compare
from hpctrip.base.text import markdown_table
from hpctrip.figures.common.grouping import times_of
from hpctrip.figures.common.plot import aligned
from hpctrip.studies.ledger import Line


@dataclass(frozen=True)
class Row:
    """One row: a variant."""

    variant: str
    choices: dict[str, str]
    target: float
    planned: int
    """Number of its seeds in the grid."""
    times: Times | None
    """None if no run is finished."""
    ratio: Estimate
    """Time-to-accuracy relative to the first variant's."""


def rows(lines: Sequence[Line]) -> list[Row]:
    """One row per variant with its finished runs, in the order of the grid. The ratio is unknown if the first variant
    has another target accuracy or shares no seed."""
    variants: dict[str, list[Line]] = {}
    for line in lines:
        variants.setdefault(line.entry.variant, []).append(line)
    table: list[Row] = []
    for name, members in variants.items():
        finished = [line.stored.run for line in members if line.finished and line.stored.run]
        target = members[0].entry.run_input.experiment.stop.target_accuracy
        target = math.nan if target is None else target
        times = times_of(finished, target) if finished else None
        first = table[0].times if table else times
        comparable = times and first and target > 0 and target == (table[0].target if table else target)
        ratio = compare(times, first) if comparable else Estimate.mean([])
        table.append(Row(name, dict(members[0].entry.choices), target, len(members), times, ratio))
    return table


HEAD = (
    "variant",
    "TTA h (95 % interval)",
    "seeds",
    "reached",
    "best accuracy",
    "ratio to the first, by seed",
)


def printed(table: Sequence[Row]) -> list[str]:
    """The table as lines of aligned columns, for a terminal."""
    return aligned(HEAD, [_cells(row) for row in table])


def markdown(table: Sequence[Row], title: str) -> str:
    """The table in Markdown."""
    return f"# {title}\n\n{markdown_table(HEAD, map(_cells, table))}\n"


def frame(table: Sequence[Row]) -> pd.DataFrame:
    """The table's numbers, one row per variant."""
    return pd.DataFrame([_numbers(row) for row in table])


def _cells(row: Row) -> tuple[str, ...]:
    if row.times is None:
        return row.variant, "-", f"0 of {row.planned}", "-", "-", "-"
    seeds = (
        str(row.planned) if row.times.num_seeds == row.planned else f"{row.times.num_seeds} of {row.planned}"
    )
    reached = f"{row.times.num_reached}/{row.times.num_seeds}"
    accuracy = f"{row.times.best_accuracy:.4f}"
    if math.isnan(row.target):
        return row.variant, "no target", seeds, "-", accuracy, "-"
    return row.variant, str(row.times), seeds, reached, accuracy, row.ratio.text()


def _numbers(row: Row) -> dict[str, object]:
    missing = dict.fromkeys(("mean_h", "low_h", "high_h", "best_accuracy"), math.nan)
    times = row.times.row() if row.times else missing | {"num_seeds": 0, "num_reached": 0}
    r = row.ratio
    ratio = {"ratio": r.value, "ratio_low": r.low, "ratio_high": r.high, "ratio_is": r.bound}
    labels = {"variant": row.variant, **row.choices, "target_accuracy": row.target}
    return labels | times | ratio | {"num_pairs": r.n}
