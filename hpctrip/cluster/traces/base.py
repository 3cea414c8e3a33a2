"""Interface of job traces, with the keys and checks common to all: selection of jobs, load, and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.text import unknown_name
from hpctrip.cluster.models import MOST_GPUS, Catalogue, Profile, Speeds
from hpctrip.config.component import Component, Registry
from hpctrip.config.sources import Reads

TRACES = Registry("jobs", default="synthetic")

LONGEST_S = 1e9
"""Maximum of times and durations in a trace, about thirty years."""


@dataclass(frozen=True)
class Raw:
    """N jobs as recorded in a trace, in any order. Each job has a duration or a number of steps."""

    place: str
    """Name of the trace in error messages."""
    name: Sequence[str]
    submit_s: np.ndarray
    gpus: np.ndarray
    duration_s: np.ndarray | None = None
    """[N] durations, NaN for jobs with a number of steps; None: no job has a duration."""
    steps: np.ndarray | None = None
    """[N] numbers of steps, NaN for jobs with a duration; None: no job has a number of steps."""
    kind: Sequence[tuple[str, int] | None] | None = None
    """[N] (model, batch size); None: not recorded."""
    profiles: dict[tuple[str, int], Profile] = field(default_factory=dict)
    """Profiles that the trace provides; the others come from the catalogue."""


@dataclass(frozen=True)
class Jobs:
    """The N jobs of a simulation, in the order of their submission."""

    name: Sequence[str]
    """[N] names in the trace."""
    submit_s: np.ndarray
    """[N] times of submission, non-decreasing; the first is 0."""
    gpus: np.ndarray
    """[N] GPUs requested by the user."""
    profile: np.ndarray
    """[N] index into `profiles`."""
    steps: np.ndarray
    """[N] total work in the profile's unit; NaN if the trace has a duration only."""
    duration_s: np.ndarray
    """[N] running time on the requested GPUs at the highest frequency; NaN if the trace has the work."""
    profiles: tuple[Profile, ...]
    start_s: float
    """Time of the first submission in the trace's own clock."""

    def __len__(self) -> int:
        return len(self.submit_s)

    def work(self, speeds: Speeds) -> np.ndarray:
        """[N] total work. A duration is converted at the speed on the requested GPUs at the highest frequency."""
        full_speed = speeds.rate[self.profile, self.gpus, -1]
        return np.where(np.isnan(self.steps), self.duration_s * full_speed, self.steps)

    def check_fit(self, num_gpus: int) -> None:
        """Raise InputError if a job requests more GPUs than the cluster has."""
        beyond = np.flatnonzero(self.gpus > num_gpus)
        if len(beyond):
            name, gpus = self.name[beyond[0]], self.gpus[beyond[0]]
            more = f" (and {len(beyond) - 1:,} more)" if len(beyond) > 1 else ""
            raise InputError(
                "jobs",
                f"job {name!r} asks for {gpus:,} GPUs, the cluster has {num_gpus:,}{more}",
                "give the cluster more nodes, or set jobs.largest to leave larger jobs out",
            )


class Trace(Component):
    """Base class of job traces. A subclass reads the `raw` jobs; the keys of this class select and scale them."""

    synthetic: ClassVar[bool] = False
    """Whether the jobs are generated."""
    clock: ClassVar[Literal["seconds", "dates", "none"]] = "seconds"
    """Clock of the times of submission: that of all files whose times are seconds, dates, or none that a file may
    share."""
    load: float = Field(1.0, gt=0, le=1e6)
    """Factor by which jobs are submitted faster than in the trace; their lengths are unchanged."""
    first: int | None = Field(None, ge=1)
    """Number of jobs to use, the earliest ones; absent: all."""
    largest: int | None = Field(None, ge=1, le=MOST_GPUS)
    """Jobs that request more GPUs are left out; absent: none."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Read all jobs of the trace. InputError names the wrong line."""
        raise NotImplementedError

    def replica(self, number: int) -> Self:
        """The trace with other random draws, if its jobs are generated; replica 0 is the trace itself."""
        return self

    def jobs(self, catalogue: Catalogue, seed: int) -> Jobs:
        """The selected jobs in the order of submission, from time 0.

        A job without a recorded model gets one of the catalogue, drawn from the stream (seed, "job-model"). Raises
        InputError as `raw` does, and if no job is left.
        """
        raw = self.raw(catalogue)
        num_jobs = len(raw.submit_s)
        if not num_jobs:
            raise InputError(raw.place, "holds no job", "give a trace with at least one")
        order = np.argsort(raw.submit_s, kind="stable")
        if self.largest is not None:
            order = order[raw.gpus[order] <= self.largest]
            if not len(order):
                problem = f"all {num_jobs:,} jobs ask for more GPUs"
                raise InputError(f"jobs.largest = {self.largest}", problem, "allow larger ones")
        order = order[: self.first]
        drawn = stream(seed, "job-model").integers(len(catalogue.kinds), size=num_jobs)
        kinds = [(raw.kind and raw.kind[job]) or catalogue.kinds[drawn[job]] for job in order.tolist()]
        numbers = {kind: number for number, kind in enumerate(sorted(set(kinds)))}
        submit_s = raw.submit_s[order]
        steps, duration_s = (
            np.full(len(order), np.nan) if values is None else values[order]
            for values in (raw.steps, raw.duration_s)
        )
        return Jobs(
            name=[raw.name[job] for job in order.tolist()],
            submit_s=(submit_s - submit_s[0]) / self.load,
            gpus=raw.gpus[order],
            profile=np.array([numbers[kind] for kind in kinds]),
            steps=steps,
            duration_s=duration_s,
            profiles=tuple(raw.profiles.get(kind) or catalogue.profile(*kind) for kind in numbers),
            start_s=float(submit_s[0]),
        )


class TraceFile(Trace):
    """Base class of job traces that are one CSV file."""

    path: Annotated[PathName, Reads()]
    """The CSV file, plain or gzipped."""

    def table(self, *required: str) -> Table:
        """The file, which must have these columns. Raises InputError if it is missing or invalid."""
        table = read_table(self.path, f"jobs.path = {self.path!r}")
        table.require(*required)
        return table


def submission_times(table: Table, name: str, is_sorted: bool = True) -> np.ndarray:
    """Read a column of submission times, [N] seconds. Raises InputError if they are negative, or `is_sorted` and they
    decrease."""
    submit_s = table.numbers(name)
    beyond = (submit_s < 0) | (submit_s > LONGEST_S)
    table.refuse(
        name, beyond, f"is not a time from 0 to {LONGEST_S:g} s", "subtract the first of them from all"
    )
    falls = is_sorted & (np.diff(submit_s, prepend=-np.inf) < 0)
    table.refuse(name, falls, "is before the line above", "sort the trace by the time of submission")
    return submit_s


def durations(table: Table, name: str, may_lack: bool = False) -> np.ndarray:
    """Read a column of durations, [N] seconds above 0; NaN for an empty field, if permitted by `may_lack`."""
    duration_s = table.numbers(name, may_lack)
    wrong = (duration_s <= 0) | (duration_s > LONGEST_S)
    table.refuse(name, wrong, f"is not a duration above 0 and up to {LONGEST_S:g} s")
    return duration_s


def gpu_counts(table: Table, name: str) -> np.ndarray:
    """Read a column of requested GPUs, [N] from 1 to MOST_GPUS."""
    gpus = table.integers(name)
    table.refuse(name, (gpus < 1) | (gpus > MOST_GPUS), f"is not a number of GPUs from 1 to {MOST_GPUS:,}")
    return gpus


def step_counts(table: Table, name: str, may_lack: bool = False) -> np.ndarray:
    """Read a column of steps, [N] above 0; NaN for an empty field, if permitted by `may_lack`."""
    steps = table.numbers(name, may_lack)
    table.refuse(name, (steps <= 0) | (steps > 1e15), "is not a number of steps above 0")
    return steps


def model_kinds(table: Table, model: str, batch: str, catalogue: Catalogue) -> list[tuple[str, int]]:
    """Read the columns of model and batch size, [N] pairs. Raises InputError for a model outside the catalogue."""
    models, batches = table.texts(model), table.integers(batch)
    wrong = np.array([name not in catalogue.batches for name in models], bool)
    hint = unknown_name(models[int(wrong.argmax())], catalogue.batches) if wrong.any() else ""
    table.refuse(model, wrong, "is not a model of the catalogue", hint)
    table.refuse(batch, (batches < 1) | (batches > 10**7), "is not a batch size from 1 to 10,000,000")
    return list(zip(models, batches.tolist(), strict=True))
