"""Interface of job traces, with the keys and checks common to all: selection of jobs, load, and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from pydantic import Field

from hpctrip.base.csv import Table
from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.cluster.jobs import Jobs
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.profiles import Profile
from hpctrip.config.component import Component, Registry

TRACES = Registry("jobs", default="synthetic")

MOST_GPUS = 4096
"""Maximum number of GPUs that a job may request."""
LONGEST_S = 1e9
"""Maximum of times and durations in a trace, about thirty years."""


@dataclass(frozen=True)
class Raw:
    """N jobs as recorded in a trace, in any order."""

    place: str
    """Name of the trace in error messages."""
    name: Sequence[str]
    submit_s: np.ndarray
    gpus: np.ndarray
    duration_s: np.ndarray
    """[N] durations; NaN for jobs with a number of steps."""
    steps: np.ndarray
    """[N] numbers of steps; NaN for jobs with a duration only."""
    kind: Sequence[tuple[str, int] | None]
    """[N] (model, batch size); None: not recorded."""
    profiles: dict[tuple[str, int], Profile] = field(default_factory=dict)
    """Profiles that the trace provides; the others come from the catalogue."""
    synthetic: bool = False
    """Whether the jobs were generated."""


class Trace(Component):
    """Base class of job traces. A subclass reads the `raw` jobs; the keys of this class select and scale them."""

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
        if not len(raw.submit_s):
            raise InputError(raw.place, "holds no job", "give a trace with at least one")
        order = np.argsort(raw.submit_s, kind="stable")
        if self.largest is not None:
            order = order[raw.gpus[order] <= self.largest]
            if not len(order):
                problem = f"all {len(raw.gpus):,} jobs ask for more GPUs"
                raise InputError(f"jobs.largest = {self.largest}", problem, "allow larger ones")
        order = order[: self.first]
        drawn = stream(seed, "job-model").integers(len(catalogue.kinds), size=len(raw.gpus))
        kinds = [raw.kind[job] or catalogue.kinds[drawn[job]] for job in order.tolist()]
        numbers = {kind: number for number, kind in enumerate(sorted(set(kinds)))}
        submit_s = raw.submit_s[order]
        return Jobs(
            name=[raw.name[job] for job in order.tolist()],
            submit_s=(submit_s - submit_s[0]) / self.load,
            gpus=raw.gpus[order],
            profile=np.array([numbers[kind] for kind in kinds]),
            steps=raw.steps[order],
            duration_s=raw.duration_s[order],
            profiles=tuple(raw.profiles.get(kind) or catalogue.profile(*kind) for kind in numbers),
            synthetic=raw.synthetic,
        )


def submission_times(table: Table, name: str) -> np.ndarray:
    """Read a column of submission times, [N] seconds. Raises InputError if they are negative or decrease."""
    submit_s = table.numbers(name)
    table.refuse(name, (submit_s < 0) | (submit_s > LONGEST_S), f"is no time from 0 to {LONGEST_S:g} s")
    falls = np.diff(submit_s, prepend=-np.inf) < 0
    table.refuse(name, falls, "is before the line above", "sort the trace by the time of submission")
    return submit_s


def durations(table: Table, name: str, may_lack: bool = False) -> np.ndarray:
    """Read a column of durations, [N] seconds above 0; NaN for an empty field, if permitted by `may_lack`."""
    duration_s = table.numbers(name, may_lack)
    table.refuse(
        name,
        (duration_s <= 0) | (duration_s > LONGEST_S),
        f"is no duration above 0 and up to {LONGEST_S:g} s",
    )
    return duration_s


def gpu_counts(table: Table, name: str) -> np.ndarray:
    """Read a column of requested GPUs, [N] from 1 to MOST_GPUS."""
    gpus = table.integers(name)
    table.refuse(name, (gpus < 1) | (gpus > MOST_GPUS), f"is no number of GPUs from 1 to {MOST_GPUS:,}")
    return gpus


def step_counts(table: Table, name: str, may_lack: bool = False) -> np.ndarray:
    """Read a column of steps, [N] above 0; NaN for an empty field, if permitted by `may_lack`."""
    steps = table.numbers(name, may_lack)
    table.refuse(name, (steps <= 0) | (steps > 1e15), "is no number of steps above 0")
    return steps


def model_kinds(table: Table, model: str, batch: str, catalogue: Catalogue) -> list[tuple[str, int]]:
    """Read the columns of model and batch size, [N] pairs. Raises InputError for a model outside the catalogue."""
    models, batches = table.texts(model), table.integers(batch)
    wrong = np.array([name not in catalogue for name in models], bool)
    if wrong.any():
        table.refuse(
            model, wrong, "is no model that is known", catalogue.suggest(models[int(wrong.argmax())])
        )
    table.refuse(batch, (batches < 1) | (batches > 10**7), "is no batch size from 1 to 10,000,000")
    return list(zip(models, batches.tolist(), strict=True))


def not_recorded(num_jobs: int) -> np.ndarray:
    """Array [N] of NaN, for a quantity that a trace does not record."""
    return np.full(num_jobs, np.nan)
