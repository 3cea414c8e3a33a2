"""The outcome of training in one round: losses, norms, evaluation and wall times, which a simulation cannot know.

It is *real* where hosts trained (runner/aggregator.py makes it of what they counted), *recorded* where a file is
replayed, and *assumed* where a round is only planned or a policy only studied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from hpctrip.sim.rounds import RoundRow, Status

SITE_REPORTS = {
    "train_loss": "train_loss",
    "loss_before": "loss_before",
    "loss_after": "loss_after",
    "site_update_norm": "update_norm",
}
"""{number [k] of an outcome that every site that arrived reports: its column in `CohortRound`}."""


MEASURED = (
    "wall_s",
    "train_wall_s",
    "exchange_wall_s",
    "evaluate_wall_s",
    "record_wall_s",
    "idle_fraction",
    "wall_j",
    "record_wall_j",
    "train_wall_j",
    "exchange_wall_j",
    "evaluate_wall_j",
)
"""Columns of `RoundRow` that hold measured times and joules."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of training a cohort. Arrays [k] in the cohort's order."""

    diverged: np.ndarray
    """Whether the site's update was left out because it was no usable number."""
    train_loss: np.ndarray
    """Mean training loss over the site's steps; here and in the next three, the value of a site that was not trained is
    ignored."""
    loss_before: np.ndarray
    """Mean loss of the site's first batch, at the global model."""
    loss_after: np.ndarray
    """Mean loss of its last batch, before its last step."""
    site_update_norm: np.ndarray
    """Euclidean norm of its update, as it arrived."""
    train_wall_s: np.ndarray
    """Wall time that training the site took."""
    mean_update_norm: float
    """Euclidean norm of the weighted mean of the updates that arrived (Eq. 1)."""
    update_cosine: float
    """Cosine of the angle between this mean update and the last one; NaN where it is not known."""
    update_norm: float
    """Euclidean norm of the change of the global model."""
    eval_correct: int
    eval_seen: int
    """Held-out samples evaluated; 0: none this round."""
    eval_loss: float
    """Mean held-out loss; NaN where nothing was evaluated."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """{column of MEASURED: value}; NaN where it is absent."""

    @classmethod
    def recorded(cls, row: RoundRow) -> Self:
        """The outcome of a recorded round."""
        return cls(
            diverged=row.cohort.status == Status.DIVERGED,
            **{name: getattr(row.cohort, column) for name, column in SITE_REPORTS.items()},
            train_wall_s=row.cohort.train_wall_s,
            mean_update_norm=row.mean_update_norm,
            update_cosine=row.update_cosine,
            update_norm=row.update_norm,
            eval_correct=row.eval_correct,
            eval_seen=row.eval_seen,
            eval_loss=row.eval_loss,
            measured={name: getattr(row, name) for name in MEASURED},
        )

    @classmethod
    def assumed(cls, train_wall_s: np.ndarray, accuracy: float = math.nan) -> Self:
        """The outcome of a round without training: `accuracy` on a million held-out samples (NaN: not evaluated);
        the rest is unknown.

        `train_wall_s` [k] stands in for what training would have taken.
        """
        k, samples = len(train_wall_s), 0 if math.isnan(accuracy) else 1_000_000
        return cls(
            diverged=np.zeros(k, dtype=bool),
            **{name: np.full(k, math.nan) for name in SITE_REPORTS},
            train_wall_s=train_wall_s,
            mean_update_norm=math.nan,
            update_cosine=math.nan,
            update_norm=math.nan,
            eval_correct=round(accuracy * samples) if samples else 0,
            eval_seen=samples,
            eval_loss=math.nan,
        )
