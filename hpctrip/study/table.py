"""The table of a study: time-to-accuracy by variant, over its seeds, and against the first variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hpctrip.base.text import markdown_table
from hpctrip.figures.common.intervals import Times, mean_and_interval, times
from hpctrip.figures.common.plot import aligned
from hpctrip.record.reader import Run
from hpctrip.study.ledger import Line


@dataclass(frozen=True)
class Ratio:
    """How many times the hours of the first variant a variant takes: the geometric mean over the seeds that both have
    and reached, with its 95 % interval (Student t over the logarithms, seed by seed)."""

    mean: float
    low: float
    high: float
    num_pairs: int

    def __str__(self) -> str:
        if not self.num_pairs:
            return "-"
        interval = f" ({self.low:.3g} to {self.high:.3g})" if math.isfinite(self.low) else ""
        return f"{self.mean:.3g}{interval}"


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
    ratio: Ratio


NO_RATIO = Ratio(math.nan, math.nan, math.nan, 0)


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
                paired_ratio(finished, first),
            )
        )
    return made


def _finished(lines: Sequence[Line]) -> dict[int, Run]:
    return {line.entry.seed: line.evidence.run for line in lines if line.finished and line.evidence.run}


def paired_ratio(runs: dict[int, Run], base: dict[int, Run]) -> Ratio:
    """The hours of `runs` over those of `base`, each by seed, where every common seed reached its target; where one did
    not, its ratio is not known, and a mean over the others would not be one over seeds."""
    pairs = [(runs[seed].time_to_accuracy_s, base[seed].time_to_accuracy_s) for seed in runs if seed in base]
    logs = np.array([math.log(own / other) if own > 0 and other > 0 else math.nan for own, other in pairs])
    if not len(logs) or not np.isfinite(logs).all():
        return NO_RATIO
    mean, half = mean_and_interval(logs.tolist())
    return Ratio(*(math.exp(x) for x in (mean, mean - half, mean + half)), len(logs))


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
    if math.isnan(row.target):
        return row.variant, "no target", seeds, "-", f"{row.times.accuracy:.4f}", "-"
    return row.variant, str(row.times), seeds, reached, f"{row.times.accuracy:.4f}", str(row.ratio)


def _numbers(row: Row) -> dict[str, object]:
    nothing = dict.fromkeys(("mean_h", "low_h", "high_h", "best_accuracy"), math.nan)
    known = row.times.row() if row.times else nothing | {"num_seeds": 0, "num_reached": 0}
    ratio = {"ratio": row.ratio.mean, "ratio_low": row.ratio.low, "ratio_high": row.ratio.high}
    named = {"variant": row.variant, **row.choices, "target_accuracy": row.target}
    return named | known | ratio | {"num_pairs": row.ratio.num_pairs}
