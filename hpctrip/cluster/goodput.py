"""Training jobs from the measurements of Pollux (Qiao et al., OSDI 2021): time of a step and number of steps.

The work of a whole training is 1, for any batch size. With a batch of B samples it takes
I(B) = sum over its epochs of progress / gain(B) steps, where gain = (var + sqr) / (var / scale + sqr) is the progress
of a step of B samples relative to a step of the smallest batch, which is `scale` times smaller. sqr and var are the
squared norm and the variance of the gradient in that epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hpctrip.cluster.step_time import StepTime, fit_step_time
from hpctrip.cluster.tables import Measured

_CANDIDATES = 50
"""Number of batch sizes among which an adaptive job chooses, geometrically spaced."""


@dataclass(frozen=True, eq=False)
class Application:
    """Measurements of one application: M step times, and the gradient noise in E epochs."""

    name: str
    placement: tuple[str, ...]
    """[M] GPUs on each node, one digit for each node; empty: not recorded."""
    nodes: np.ndarray
    gpus: np.ndarray
    local_batch: np.ndarray
    step_s: np.ndarray
    sync_s: np.ndarray
    """[M] part of `step_s` that exchanges gradients."""
    progress: np.ndarray
    """[E] progress of each epoch, in steps of the smallest batch."""
    noise: Mapping[int, np.ndarray]
    """{batch size: [2, E] squared norm and variance of the gradient}."""
    largest_local: int | None = None
    """Largest batch of one GPU, if it is below the largest measured one."""
    _curves: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = field(
        default_factory=dict
    )
    _steps: dict[int, float] = field(default_factory=dict)

    @property
    def smallest_batch(self) -> int:
        """Smallest batch size whose noise was measured."""
        return min(self.noise)

    @property
    def largest_batch(self) -> int:
        """Largest batch size whose noise was measured."""
        return max(self.noise)

    @property
    def local_range(self) -> tuple[int, int]:
        """Smallest and largest batch size of one GPU."""
        return int(self.local_batch.min()), self.largest_local or int(self.local_batch.max())

    def num_steps(self, batch: int) -> float:
        """Number of steps I(B) of a whole training. The noise is interpolated between measured batch sizes."""
        if batch not in self._steps:
            self._steps[batch] = self._num_steps(batch)
        return self._steps[batch]

    def _num_steps(self, batch: int) -> float:
        sizes = np.array(sorted(self.noise))
        stacked = np.stack([self.noise[size] for size in sizes.tolist()])
        above = min(int(np.searchsorted(sizes, batch)), len(sizes) - 1)
        below = max(above - 1, 0) if sizes[above] != batch else above
        share = (batch - sizes[below]) / (sizes[above] - sizes[below]) if above != below else 0.0
        sqr, var = (1 - share) * stacked[below] + share * stacked[above]
        gain = (var + sqr) / (var / (batch / self.smallest_batch) + sqr)
        return float((self.progress / gain).sum())

    def step(self, gpus: int, nodes: int, fewest: int, local_batch: float) -> tuple[float, float]:
        """(seconds of computing, seconds of exchanging gradients) in a step on `gpus` GPUs of `nodes` nodes.

        Measured times are used where there are any: on the fewest possible nodes (`fewest`) those of the packed
        placement, else the mean over all placements on as many nodes. Otherwise the fitted form is used.
        """
        key = (gpus, nodes, fewest)
        if key not in self._curves:
            self._curves[key] = self._measured(self._rows(gpus, nodes, fewest))
        sizes, all_step_s, all_sync_s = self._curves[key]
        if len(sizes):
            step_s, sync_s = (
                float(np.interp(local_batch, sizes, values)) for values in (all_step_s, all_sync_s)
            )
            return step_s - sync_s, sync_s
        compute_s = float(self._fitted.compute_s(local_batch))
        return compute_s, max(float(self._fitted.seconds(local_batch, gpus, nodes)) - compute_s, 0.0)

    def _measured(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(local batch sizes, seconds of a step, seconds of exchange) of these rows, averaged over equal sizes."""
        sizes, where = np.unique(self.local_batch[at], return_inverse=True)
        counts = np.maximum(np.bincount(where, minlength=len(sizes)), 1)
        step_s, sync_s = (
            np.bincount(where, values[at], minlength=len(sizes)) / counts
            for values in (self.step_s, self.sync_s)
        )
        return sizes, step_s, sync_s

    def _rows(self, gpus: int, nodes: int, fewest: int) -> np.ndarray:
        here = np.flatnonzero((self.gpus == gpus) & (self.nodes == nodes))
        if nodes == fewest and len(here):
            each = max(int(digit) for row in here for digit in self.placement[row] or "0")
            if each:
                packed = sorted([*[each] * (gpus // each), *([gpus % each] if gpus % each else [])])
                exact = [row for row in here.tolist() if sorted(map(int, self.placement[row])) == packed]
                return np.array(exact or here, int)
        return here

    @cached_property
    def _fitted(self) -> StepTime:
        measured = Measured(self.name, self.local_batch * self.gpus, self.gpus, self.nodes, self.step_s)
        return fit_step_time(measured).step_time


@dataclass(frozen=True)
class Training:
    """A whole training of an application, with a fixed or an adaptive batch size: a `Profile` whose work is 1.

    An adaptive job chooses one batch size for the whole training; Pollux chooses one for each epoch. The
    simplification is ours.
    """

    name: str
    application: Application
    gpus_per_node: int
    most_gpus: int
    batch: int | None
    """Global batch size; None: the one with which the training is fastest on its GPUs."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Trainings per second, and the computing share of a step, [F] each; see `Profile.speed`."""
        tried = [self._with(batch, gpus, nodes) for batch in self._batches(gpus)]
        compute_s, sync_s, steps = min(tried, key=lambda times: (times[0] + times[1]) * times[2])
        step_s = compute_s * slowdown + sync_s
        return 1 / (step_s * steps), compute_s * slowdown / step_s

    def _batches(self, gpus: int) -> list[int]:
        if self.batch is not None:
            return [self.batch]
        application = self.application
        lowest = min(
            max(application.smallest_batch, application.local_range[0] * gpus), application.largest_batch
        )
        return sorted({int(size) for size in np.geomspace(lowest, application.largest_batch, _CANDIDATES)})

    def _with(self, batch: int, gpus: int, nodes: int) -> tuple[float, float, float]:
        """(seconds of computing, seconds of exchanging, steps) with a batch size, accumulated if a GPU holds less."""
        application = self.application
        local = math.ceil(batch / gpus)
        accumulated = math.ceil(local / application.local_range[1]) - 1
        if gpus == 1 and batch > application.smallest_batch:
            accumulated = max(accumulated, 1)  # the noise cannot be estimated from one batch
        fewest = -(-gpus // self.gpus_per_node)
        compute_s, sync_s = application.step(gpus, nodes, fewest, math.ceil(local / (accumulated + 1)))
        return compute_s * (accumulated + 1), sync_s, application.num_steps(batch)
