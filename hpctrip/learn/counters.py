"""The numbers that travel with the sum, declared once: losses, wall times and flags as integers, so that their sum over
the ranks has no order. A new one is one line here and, where it is to be recorded, one column in sim/rounds.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hpctrip.learn.evaluate import LOSS_SCALE


@dataclass(frozen=True)
class Counter:
    """One named number, or one for each site or rank. The ranks' contributions are added; a rank without one adds 0."""

    name: str
    per: Literal["site", "rank", "job"] = "job"
    """Shape: [k] in the cohort's order, [ranks], or [1]."""
    scale: float = 1.0
    """A value x travels as the integer part of x * scale."""

    def size(self, num_sites: int, num_ranks: int) -> int:
        """Number of integers in the vector."""
        return {"site": num_sites, "rank": num_ranks, "job": 1}[self.per]


def vector_size(counters: Sequence[Counter], num_sites: int, num_ranks: int) -> int:
    """T: length of the vector of these counters for a cohort of `num_sites` sites on `num_ranks` ranks."""
    return sum(counter.size(num_sites, num_ranks) for counter in counters)


class Tally:
    """The values of counters that travel together in one int64 vector."""

    def __init__(
        self, counters: Sequence[Counter], num_sites: int, num_ranks: int, vector: np.ndarray | None = None
    ):
        """All zero, or as they stand in `vector` [T] int64."""
        sizes = [counter.size(num_sites, num_ranks) for counter in counters]
        self.vector = np.zeros(sum(sizes), dtype=np.int64) if vector is None else vector
        """[T] int64: what travels."""
        self.integers: dict[str, np.ndarray] = {}
        """Each counter's part of the vector, a view."""
        self._scales = {counter.name: counter.scale for counter in counters}
        start = 0
        for counter, size in zip(counters, sizes, strict=True):
            self.integers[counter.name] = self.vector[start : start + size]
            start += size

    def note(self, name: str, value: float | np.ndarray, at: int | slice = 0) -> None:
        """Set one entry of a counter, or a slice of them."""
        self.integers[name][at] = np.asarray(value * self._scales[name]).astype(np.int64)

    def values(self, name: str) -> np.ndarray:
        """A counter's entries as the numbers that they stand for, float64."""
        return self.integers[name] / self._scales[name]

    def agreed(self, name: str) -> float:
        """The value of a counter to which some ranks give the same value, and the others none."""
        values = self.values(name)
        return float(values[np.abs(values).argmax()])


_NANOSECONDS = 1e9
_LOSS = 2.0**20
_NORM = 2.0**24  # entries below 2^20 (learn/aggregate.py): up to 2^38 parameters, no norm overflows
_COSINE = 2.0**24  # coarse: the last bits, in which the order of a sum shows, do not travel

LOSSES = ("train_loss", "loss_before", "loss_after")
"""Numbers of a `SiteUpdate` that every site reports."""

TRAINING = (
    Counter("diverged", "site"),  # 1 where the update was left out because it is not finite or too large
    Counter("train_wall_s", "site", _NANOSECONDS),
    *(Counter(name, "site", _LOSS) for name in LOSSES),
    Counter("update_norm", "site", _NORM),
    Counter("rank_train_wall_s", "rank", _NANOSECONDS),
)
"""Counters of the hosts on training a cohort, in the tail of the vector that carries the summed update."""

EVALUATION = (
    Counter("correct"),
    Counter("seen"),
    Counter("loss_sum", scale=LOSS_SCALE),
    Counter("rank_evaluate_wall_s", "rank", _NANOSECONDS),
    # noted, alike, by the ranks that made the server's step
    Counter("mean_update_norm", "rank", _NORM),
    Counter("update_cosine", "rank", _COSINE),  # 0: unknown
    Counter("signal", "rank"),  # the number of the signal that the rank has received; 0: none
    # of the machine whose counters the rank reads; one rank of each machine does
    *(Counter(f"{phase}_wall_j", "rank", 1e6) for phase in ("record", "train", "exchange", "evaluate")),
    Counter("metered", "rank"),  # 1 where it could read them throughout the round
)
"""Counters of the ranks after a round: their share of the evaluation, and the signal that one has received."""
