"""The contract of a trace of jobs, and what is common to all: which jobs, how dense, of which models."""

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
"""That a job may ask for."""
LONGEST_S = 1e9
"""Of times and durations in a trace: thirty years."""


@dataclass(frozen=True)
class Raw:
    """N jobs as a trace has them, in any order."""

    place: str
    """How to speak of the trace."""
    name: Sequence[str]
    submit_s: np.ndarray
    gpus: np.ndarray
    duration_s: np.ndarray
    """[N] NaN where the work is known."""
    steps: np.ndarray
    """[N] NaN where only a duration is known."""
    kind: Sequence[tuple[str, int] | None]
    """[N] model and batch size; None: not known."""
    profiles: dict[tuple[str, int], Profile] = field(default_factory=dict)
    """Profiles that the trace brings along; others come from the catalogue."""
    synthetic: bool = False


class Trace(Component):
    """Base of all traces. A trace gives `raw` jobs; the keys here say what is made of them."""

    load: float = Field(1.0, gt=0, le=1e6)
    """How many times as fast the jobs are submitted as in the trace; their lengths stay."""
    first: int | None = Field(None, ge=1)
    """Only so many jobs, the earliest; absent: all."""
    largest: int | None = Field(None, ge=1, le=MOST_GPUS)
    """Jobs that ask for more GPUs are left out; absent: none is."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """The jobs of the trace. Raises InputError that names the line that is wrong."""
        raise NotImplementedError

    def replica(self, number: int) -> Self:
        """Other jobs of the same sort, where they are made up; number 0 is itself. A trace has no others."""
        return self

    def jobs(self, catalogue: Catalogue, seed: int) -> Jobs:
        """The jobs, in the order of their submission, from time 0. A job whose model is not known trains one of the
        catalogue's, drawn from (seed, "job-model"). Raises InputError as `raw`, and where no job is left."""
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


def times(table: Table, name: str) -> np.ndarray:
    """[N] seconds of submission; InputError where they are negative or fall from one line to the next."""
    found = table.numbers(name)
    table.refuse(name, (found < 0) | (found > LONGEST_S), f"is no time from 0 to {LONGEST_S:g} s")
    falls = np.diff(found, prepend=-np.inf) < 0
    table.refuse(name, falls, "is before the line above", "sort the trace by the time of submission")
    return found


def durations(table: Table, name: str, may_lack: bool = False) -> np.ndarray:
    """[N] seconds above 0; NaN where a field may be empty and is."""
    found = table.numbers(name, may_lack)
    table.refuse(
        name, (found <= 0) | (found > LONGEST_S), f"is no duration above 0 and up to {LONGEST_S:g} s"
    )
    return found


def gpu_counts(table: Table, name: str) -> np.ndarray:
    """[N] GPUs asked for, 1 or more."""
    found = table.integers(name)
    table.refuse(name, (found < 1) | (found > MOST_GPUS), f"is no number of GPUs from 1 to {MOST_GPUS:,}")
    return found


def amounts(table: Table, name: str, may_lack: bool = False) -> np.ndarray:
    """[N] steps above 0; NaN where a field may be empty and is."""
    found = table.numbers(name, may_lack)
    table.refuse(name, (found <= 0) | (found > 1e15), "is no number of steps above 0")
    return found


def kinds(table: Table, model: str, batch: str, catalogue: Catalogue) -> list[tuple[str, int]]:
    """[N] (model, batch size); InputError where a model is not in the catalogue."""
    models, batches = table.texts(model), table.integers(batch)
    known = {name: name in catalogue for name in set(models)}
    wrong = np.array([not known[name] for name in models], bool)
    if wrong.any():
        table.refuse(
            model, wrong, "is no model that is known", catalogue.instead_of(models[int(wrong.argmax())])
        )
    table.refuse(batch, (batches < 1) | (batches > 10**7), "is no batch size from 1 to 10,000,000")
    return list(zip(models, batches.tolist(), strict=True))


def unknown(num_jobs: int) -> np.ndarray:
    """[N] NaN."""
    return np.full(num_jobs, np.nan)
