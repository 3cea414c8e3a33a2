"""Local work of a site between two rounds of communication, after AdaComm."""

from __future__ import annotations

import math

import numpy as np

from hpctrip.sim.rounds import History, RoundRow, Status

_RECENT = 5
"""Rounds whose mean loss is the present loss F, and among which the first loss F_1 is looked for."""


def local_work(history: History, maximum: int) -> int:
    """The work of every site in the round after `history`, as a multiple of that of [train], from 1 to `maximum`.

    Wang & Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update
    SGD", Sec. 4: a round makes ceil(sqrt(F / F_1) tau_1) local steps, where F is the training loss now and F_1 that of
    the first round. The best number of steps grows as sqrt(D) there, D being the time that communication takes; tau_1
    is found by trial. Here it is sqrt(D / Y), of the site for which the last round waited: D is its communication, Y
    its compute for the work of [train]. F is the mean loss of the sites' first batches, at the global model: later
    losses fall with the local work itself. F / F_1 counts as 1 where it is larger or not known. Before anything is
    measured, and where no straggler's times are known, the work is that of [train]."""
    last = history.last
    if last is None or not 0 < last.straggler_compute_s < math.inf:
        return 1
    squared = _loss_ratio(history) * last.straggler_comm_s * last.local_work / last.straggler_compute_s
    return math.ceil(min(math.sqrt(squared), maximum)) if squared > 1 else 1


def _loss_ratio(history: History) -> float:
    """F / F_1, from 0 to 1."""
    first = next(filter(math.isfinite, map(_loss, history.rows[:_RECENT])), math.nan)
    recent = [loss for loss in map(_loss, history.rows[-_RECENT:]) if math.isfinite(loss)]
    return float(np.clip(np.mean(recent) / first, 0, 1)) if recent and first > 0 else 1.0


def _loss(row: RoundRow) -> float:
    """Mean over the sites whose updates arrived; NaN where none did."""
    losses = row.cohort.loss_before[row.cohort.status == Status.ARRIVED]
    return float(np.mean(losses)) if len(losses) else math.nan
