"""Job traces in the layouts of ElasticFlow (Gu et al., ASPLOS 2023)."""

from __future__ import annotations

from typing import Annotated

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.text import unknown_name
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.traces.base import (
    TRACES,
    Raw,
    Trace,
    durations,
    gpu_counts,
    model_kinds,
    not_recorded,
    step_counts,
    submission_times,
)
from hpctrip.config.sources import Reads

_TIME = ("submission_time", "submit_time")
_STEPS = ("num_iteration", "iteration")


@TRACES.add
class ElasticFlow(Trace):
    """A trace of microsoft/elasticflow-traces (raw or with models) or of pkusys/ElasticFlow.

    Columns: job_id, submission_time or submit_time (s), num_gpu, duration (s); with models also num_iteration or
    iteration, model_name, batch_size. With models the steps are used, not the duration. Deadlines are ignored.
    """

    kind = "elasticflow"
    path: Annotated[PathName, Reads()]
    """The CSV file."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line is a job."""
        table = read_table(self.path, f"jobs.path = {self.path!r}")
        time = _one_of(table, _TIME)
        with_models = "model_name" in table.columns
        table.require("job_id", time, "num_gpu", "duration", *(["batch_size"] if with_models else []))
        duration_s = durations(table, "duration")
        return Raw(
            place=table.place,
            name=table.texts("job_id"),
            submit_s=submission_times(table, time),
            gpus=gpu_counts(table, "num_gpu"),
            duration_s=not_recorded(len(duration_s)) if with_models else duration_s,
            steps=step_counts(table, _one_of(table, _STEPS))
            if with_models
            else not_recorded(len(duration_s)),
            kind=model_kinds(table, "model_name", "batch_size", catalogue)
            if with_models
            else [None] * len(duration_s),
        )


def _one_of(table: Table, names: tuple[str, ...]) -> str:
    present = [name for name in names if name in table.columns]
    if not present:
        problem = f"has no column {' or '.join(names)}; {unknown_name(names[0], table.columns)}"
        raise InputError(table.place, problem)
    return present[0]
