"""The table of a study: time-to-accuracy by variant, over its seeds, and against the first variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from hpctrip.base.text import markdown_table
from hpctrip.figures.common.intervals import Times, times
from hpctrip.figures.common.plot import aligned
from hpctrip.record.reader import Run
from hpctrip.study.ledger import Line
from hpctrip.study.ratio import Estimate, Missing, paired_ratio


@dataclass(frozen=True)
class Row:
    """One variant."""

    variant: str
    choices: dict[str, str]
    target: float
    planned: int
    """Its seeds in the grid."""
    times: Times | None
    """None: no run is finished."""
    ratio: Estimate | None
    """How many times the hours of the first variant it takes; None: not known."""


def rows(lines: Sequence[Line]) -> list[Row]:
    """One row a variant, in the order of the grid, of its finished runs."""
    variants: dict[str, list[Line]] = {}
    for line in lines:
        variants.setdefault(line.entry.variant, []).append(line)
    first = _finished(next(iter(variants.values())))
    made = []
    for name, members in variants.items():
        finished = _finished(members)
        target = members[0].entry.given.experiment.stop.target_accuracy
        target = math.nan if target is None else target
        made.append(
            Row(
                name,
                dict(members[0].entry.choices),
                target,
                len(members),
                times(list(finished.values()), target) if finished else None,
                _ratio(finished, first),
            )
        )
    return made


def _finished(lines: Sequence[Line]) -> dict[int, Run]:
    return {line.entry.seed: line.evidence.run for line in lines if line.finished and line.evidence.run}


def _ratio(runs: dict[int, Run], base: dict[int, Run]) -> Estimate | None:
    try:
        return paired_ratio(list(runs.values()), list(base.values()))
    except Missing:
        return None


NO_RATIO = Estimate(math.nan, math.nan, math.nan, 0)

HEAD = (
    "variant",
    "TTA h (95 % interval)",
    "seeds",
    "reached",
    "best accuracy",
    "ratio to the first, by seed",
)


def printed(table: Sequence[Row]) -> list[str]:
    """The table as lines of aligned columns."""
    return aligned(HEAD, [_cells(row) for row in table])


def markdown(table: Sequence[Row], title: str) -> str:
    """The table in Markdown."""
    return f"# {title}\n\n{markdown_table(HEAD, map(_cells, table))}\n"


def frame(table: Sequence[Row]) -> pd.DataFrame:
    """Every number of the table."""
    return pd.DataFrame([_numbers(row) for row in table])


def _cells(row: Row) -> tuple[str, ...]:
    if row.times is None:
        return row.variant, "-", f"0 of {row.planned}", "-", "-", "-"
    seeds = (
        str(row.planned) if row.times.num_seeds == row.planned else f"{row.times.num_seeds} of {row.planned}"
    )
    reached = f"{row.times.num_reached}/{row.times.num_seeds}"
    ratio = row.ratio.text() if row.ratio else "-"
    if math.isnan(row.target):
        return row.variant, "no target", seeds, "-", f"{row.times.accuracy:.4f}", "-"
    return row.variant, str(row.times), seeds, reached, f"{row.times.accuracy:.4f}", ratio


def _numbers(row: Row) -> dict[str, object]:
    nothing = dict.fromkeys(("mean_h", "low_h", "high_h", "best_accuracy"), math.nan)
    known = row.times.row() if row.times else nothing | {"num_seeds": 0, "num_reached": 0}
    found = row.ratio or NO_RATIO
    ratio = {"ratio": found.value, "ratio_low": found.low, "ratio_high": found.high, "ratio_is": found.bound}
    named = {"variant": row.variant, **row.choices, "target_accuracy": row.target}
    return named | known | ratio | {"num_pairs": found.n}
