"""Workloads of Pollux (Qiao et al., OSDI 2021; petuum/adaptdl, branch osdi21-artifact), from measured speed and noise.

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
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName, named_path
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.step_time import Measured, StepTime, fit_step_time
from hpctrip.cluster.traces.base import TRACES, Raw, TraceFile, gpu_counts, submission_times
from hpctrip.config.sources import Reads

LARGEST_LOCAL = {"yolov3": 8}
"""{application: largest batch of a GPU}, as set in AdaptDL's simulator; else the largest measured one."""
_ONE_GPU = ("ncf",)
"""Applications that AdaptDL's simulator never scales."""
_MOST_GPUS = 64
"""Maximum number of GPUs to which a job may be scaled."""
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
    _curves: dict[tuple[int, int, int], tuple[np.ndarray, ...]] = field(default_factory=dict)
    _steps: dict[int, float] = field(default_factory=dict)

    @property
    def batch_range(self) -> tuple[int, int]:
        """Smallest and largest batch size whose noise was measured."""
        return min(self.noise), max(self.noise)

    @property
    def local_range(self) -> tuple[int, int]:
        """Smallest and largest batch size of one GPU."""
        largest = LARGEST_LOCAL.get(self.name, int(self.local_batch.max()))
        return int(self.local_batch.min()), largest

    def num_steps(self, batch: int) -> float:
        """Number of steps I(B) of a whole training. The noise is interpolated between measured batch sizes."""
        if batch not in self._steps:
            sizes = np.array(sorted(self.noise))
            stacked = np.stack([self.noise[size] for size in sizes.tolist()])
            above = min(int(np.searchsorted(sizes, batch)), len(sizes) - 1)
            below = max(above - 1, 0) if sizes[above] != batch else above
            share = (batch - sizes[below]) / (sizes[above] - sizes[below]) if above != below else 0.0
            sqr, var = (1 - share) * stacked[below] + share * stacked[above]
            gain = (var + sqr) / (var / (batch / sizes[0]) + sqr)
            self._steps[batch] = float((self.progress / gain).sum())
        return self._steps[batch]

    def step(self, gpus: int, nodes: int, fewest: int, local_batch: float) -> tuple[float, float]:
        """(seconds of computing, seconds of exchanging gradients) in a step on `gpus` GPUs of `nodes` nodes.

        Measured times are used where there are any: on the fewest possible nodes (`fewest`) those of the packed
        placement, else the mean over all placements on as many nodes. Otherwise the fitted form is used.
        """
        key = (gpus, nodes, fewest)
        if key not in self._curves:
            self._curves[key] = self._means(self._rows(gpus, nodes, fewest))
        sizes, *curves = self._curves[key]
        if len(sizes):
            step_s, sync_s = (float(np.interp(local_batch, sizes, curve)) for curve in curves)
            return step_s - sync_s, sync_s
        compute_s = float(self._fitted.compute_s(local_batch))
        return compute_s, max(float(self._fitted.seconds(local_batch, gpus, nodes)) - compute_s, 0.0)

    def _means(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """(local batch sizes, mean seconds of a step, mean seconds of exchange) in these rows."""
        sizes, where, counts = np.unique(self.local_batch[rows], return_inverse=True, return_counts=True)
        sums = (np.bincount(where, values[rows], len(sizes)) for values in (self.step_s, self.sync_s))
        return sizes, *(total / counts for total in sums)

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
        return fit_step_time(measured)


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
        smallest, largest = self.application.batch_range
        lowest = min(max(smallest, self.application.local_range[0] * gpus), largest)
        return sorted({int(size) for size in np.geomspace(lowest, largest, _CANDIDATES)})

    def _with(self, batch: int, gpus: int, nodes: int) -> tuple[float, float, float]:
        """(seconds of computing, seconds of exchanging, steps) with a batch size, accumulated if a GPU holds less."""
        application = self.application
        local = math.ceil(batch / gpus)
        accumulated = math.ceil(local / application.local_range[1]) - 1
        if gpus == 1 and batch > application.batch_range[0]:
            accumulated = max(accumulated, 1)  # the noise cannot be estimated from one batch
        fewest = -(-gpus // self.gpus_per_node)
        compute_s, sync_s = application.step(gpus, nodes, fewest, math.ceil(local / (accumulated + 1)))
        return compute_s * (accumulated + 1), sync_s, application.num_steps(batch)


def application_files(value: str) -> list[Path]:
    """The CSV files in the folders of applications. Raises InputError if there are none."""
    paths = sorted(named_path(value, value).glob("*/*.csv"))
    if not paths:
        hint = "give the folder simulator/traces of AdaptDL's artifact"
        raise InputError(f"jobs.applications = {value!r}", "holds no APPLICATION/*.csv", hint)
    return paths


@TRACES.add
class Pollux(TraceFile):
    """Reads simulator/workloads/workload-*.csv: trainings of six applications with measured speed and gradient noise.

    Columns: name, time (s), application, num_replicas, batch_size. `applications` is the folder simulator/traces, with
    one folder for each application that holds placements.csv, scalability.csv and validation-BATCH.csv.
    """

    kind = "pollux"
    applications: Annotated[PathName, Reads(find=application_files)]
    """The folder of the applications."""
    batch: Literal["as-submitted", "adaptive"] = "as-submitted"
    """Whether a job keeps its batch size or uses the fastest one for its present GPUs."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line is one training, whose work is 1."""
        table = self.table("name", "time", "application", "num_replicas", "batch_size")
        names, batches = table.texts("application"), table.integers("batch_size")
        folder = Path(self.applications)
        measured = {name: (folder / name / "placements.csv").is_file() for name in set(names)}
        wrong = np.array([not measured[name] for name in names], bool)
        table.refuse("application", wrong, f"has no placements.csv in {self.applications}")
        applications = {name: read_application(folder / name) for name in sorted(measured)}
        low, high = np.array([applications[name].batch_range for name in names], int).reshape(-1, 2).T
        outside = (batches < low) | (batches > high)
        table.refuse("batch_size", outside, "is outside the batch sizes that were measured")
        kinds = list(zip(names, batches.tolist(), strict=True))
        return Raw(
            place=table.place,
            name=table.texts("name"),
            submit_s=submission_times(table, "time"),
            gpus=gpu_counts(table, "num_replicas"),
            steps=np.ones(len(names)),
            kind=kinds,
            profiles={kind: self._training(applications[kind[0]], kind[1], catalogue) for kind in set(kinds)},
        )

    def _training(self, application: Application, batch: int, catalogue: Catalogue) -> Training:
        adapts = self.batch == "adaptive" and application.name not in _ONE_GPU
        most = (application.batch_range[1] if adapts else batch) // application.local_range[0]
        most = 1 if application.name in _ONE_GPU else max(1, min(most, _MOST_GPUS))
        name = f"{application.name}/{'adaptive' if adapts else batch}"
        return Training(name, application, catalogue.gpus_per_node, most, None if adapts else batch)


def read_application(folder: Path) -> Application:
    """Read the measurements of an application. InputError names the file and the wrong line."""
    packed, spread = (read_table(folder / f"{name}.csv") for name in ("placements", "scalability"))
    packed.require("placement", "local_bsz", "step_time", "sync_time")
    spread.require("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    placement = list(packed.texts("placement"))
    wrong = np.array([not text.isdigit() for text in placement], bool)
    packed.refuse("placement", wrong, "is not a row of digits")
    for table in (packed, spread):
        step_s, sync_s = table.numbers("step_time"), table.numbers("sync_time")
        table.refuse("step_time", (step_s <= sync_s) | (sync_s < 0), "is not above sync_time")
    local_batch, step_s, sync_s = (
        np.concatenate([table.numbers(name) for table in (packed, spread)])
        for name in ("local_bsz", "step_time", "sync_time")
    )
    nodes = [*map(len, placement), *spread.integers("num_nodes")]
    gpus = [*(sum(map(int, text)) for text in placement), *spread.integers("num_replicas")]
    progress, noise = _validation(folder)
    return Application(
        name=folder.name,
        placement=(*placement, *[""] * len(spread.lines)),
        nodes=np.array(nodes, int),
        gpus=np.array(gpus, int),
        local_batch=local_batch,
        step_s=step_s,
        sync_s=sync_s,
        progress=progress,
        noise=noise,
    )


def _validation(folder: Path) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Read ([E] progress of each epoch, {batch size: [2, E] noise}) of the E epochs that all batch sizes have."""
    tables = {}
    for path in folder.glob("validation-*.csv"):
        size = path.stem.removeprefix("validation-")
        if size.isdigit():
            tables[int(size)] = read_table(path)
            tables[int(size)].require("progress", "grad_sqr", "grad_var")
    if not tables:
        hint = "give the folders of AdaptDL's artifact"
        raise InputError(str(folder), "holds no validation-BATCH.csv", hint)
    epochs = min(len(table.lines) for table in tables.values())
    reached = np.min([table.numbers("progress")[:epochs] for table in tables.values()], axis=0)
    noise = {
        size: np.stack([table.numbers("grad_sqr")[:epochs], table.numbers("grad_var")[:epochs]])
        for size, table in sorted(tables.items())
    }
    return np.diff(reached, prepend=0.0), noise
