"""What several parts share: the clock, updates of a cohort, and how far apart two are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from shapes import SHAPES, Shape, sites_of

from gpu.conductor import Setting
from hpctrip.learn.aggregate import PartialSum
from hpctrip.learn.engines.steps import Engine, allow_tf32
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Task


@dataclass(frozen=True)
class Case:
    """A shape with its data, its first model [P] on the device, and the visits of the sites of a cohort."""

    shape: Shape
    task: Task
    params: torch.Tensor
    sites: list[list[np.ndarray]]

    @classmethod
    def of(cls, name: str, num_sites: int, setting: Setting) -> Case:
        """So many sites of that shape. All contenders compute in float32; a part that wants less says so later."""
        torch.set_num_threads(1)
        allow_tf32("float32")
        shape, draw = SHAPES[name], np.random.default_rng(0)
        samples = min(shape.samples, 2 * shape.work.batch_size) if setting.small else shape.samples
        task = shape.task(num_sites * samples, draw)
        torch.manual_seed(0)
        params = flatten(task.build_model()).to(setting.device)
        return cls(shape, task, params, sites_of(num_sites, samples, draw))

    @property
    def work(self) -> LocalWork:
        """What a site does."""
        return self.shape.work

    @property
    def num_samples(self) -> int:
        """That are visited in a round."""
        return sum(len(order) for (order,) in self.sites)

    def round(self, engine: Engine, block: int) -> Callable[[], float]:
        """A round of training and summing, in blocks, as hosts do it; it ends when the device is through."""
        partial = PartialSum(len(self.params), 0, self.params.device)
        blocks = [self.sites[first : first + block] for first in range(0, len(self.sites), block)]

        def train() -> float:
            partial.begin(0)
            for sites in blocks:
                for update in engine.train(self.params, sites):
                    partial.add(update.delta, 1 / len(self.sites), update.magnitude)
            return partial.vector[0].item()

        return train


def deltas(engine: Engine, params: torch.Tensor, sites: list[list[np.ndarray]]) -> torch.Tensor:
    """The updates [S, P] of a block, on the CPU."""
    return torch.stack([update.delta.to("cpu", copy=True) for update in engine.train(params, sites)])


def relative_errors(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """|found - expected| / |expected| of every site [S], Euclidean norms of the updates [S, P]."""
    return (found - expected).norm(dim=1) / expected.norm(dim=1)


def seconds_of(work: Callable[[], object], repeats: int, most_s: float = 8.0) -> list[float]:
    """Wall seconds of some calls after one that warms up: `repeats`, but at least three only while `most_s` lasts."""
    work()
    seconds: list[float] = []
    while len(seconds) < min(3, repeats) or (len(seconds) < repeats and sum(seconds) < most_s):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds


def median(values: Iterable[float]) -> float:
    """The median of some measurements."""
    return statistics.median(values)
