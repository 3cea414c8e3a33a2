"""How much longer a run goes on, in wall time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpctrip.sim.rounds import RoundRow
from hpctrip.sim.stop import Stop

_RECENT = 20
"""Rounds whose mean tells how long the next ones take: cohorts grow."""
_TREND = 300
"""Rounds that are looked at for a trend, at most."""
_FEWEST = 5
"""Evaluations from which a trend is read, at least."""


def most_left_s(rows: Sequence[RoundRow], stop: Stop) -> float:
    """Seconds until the first of the limits of `stop`, with rounds as long as the last ones, of which there is one at
    least. The target accuracy may end the run earlier."""
    last, recent = rows[-1], rows[-_RECENT:]
    wall_s = sum(row.wall_s for row in recent) / len(recent)
    limits = [(stop.max_rounds - last.round) * wall_s]
    if stop.max_clock_s is not None:
        makespan_s = sum(row.makespan_s for row in recent) / len(recent)
        limits.append((stop.max_clock_s - last.clock_s) / max(makespan_s, 1e-9) * wall_s)
    if stop.max_wall_s is not None:
        limits.append(stop.max_wall_s - sum(row.wall_s for row in rows))
    return max(0.0, min(limits))


def guessed_target_s(rows: Sequence[RoundRow], stop: Stop) -> float | None:
    """Seconds until the target accuracy if it went on rising by as much a round as in the last third of the evaluations
    (least squares; of the last 100, where there are more). A guess, mostly too early: curves flatten. None: there is no
    target, or no trend towards it."""
    evaluated = [row for row in rows[-_TREND:] if row.eval_seen]
    if stop.target_accuracy is None or len(evaluated) < _FEWEST:
        return None
    recent = evaluated[-max(_FEWEST, len(evaluated) // 3) :]
    round, accuracy = np.array([(row.round, row.accuracy) for row in recent], dtype=float).T
    gain = np.polyfit(round - round.mean(), accuracy, 1)[0]
    if gain <= 0:
        return None
    level = accuracy.mean() + gain * (rows[-1].round - round.mean())
    wall_s = sum(row.wall_s for row in rows[-_RECENT:]) / len(rows[-_RECENT:])
    return max(0.0, (stop.target_accuracy - level) / gain * wall_s)
