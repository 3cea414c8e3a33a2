"""Job traces in hpctrip's own CSV layout."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.io import PathName
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


@TRACES.add
class CsvJobs(Trace):
    """A CSV file with one line per job, sorted by time of submission.

    Required columns: submit_s, gpus, and duration_s (on these GPUs at the highest frequency) or steps, or both, of
    which each line fills exactly one. Optional columns: job, its name (default: its number, from 1), and model with
    batch_size (default: drawn among the models of the catalogue).
    """

    kind = "csv"
    path: Annotated[PathName, Reads()]
    """The CSV file."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line is a job."""
        table = read_table(self.path, f"jobs.path = {self.path!r}")
        table.require("submit_s", "gpus")
        if "steps" not in table.columns:
            table.require("duration_s")
        submit_s = submission_times(table, "submit_s")
        lacking = not_recorded(len(submit_s))
        steps = step_counts(table, "steps", may_lack=True) if "steps" in table.columns else lacking
        duration_s = (
            durations(table, "duration_s", may_lack=True) if "duration_s" in table.columns else lacking
        )
        named = "steps" if "steps" in table.columns else "duration_s"
        table.refuse(named, np.isnan(steps) == np.isnan(duration_s), "is not the one of steps and duration_s")
        if "model" in table.columns:
            table.require("batch_size")
        return Raw(
            place=table.place,
            name=table.texts("job")
            if "job" in table.columns
            else [str(line + 1) for line in range(len(submit_s))],
            submit_s=submit_s,
            gpus=gpu_counts(table, "gpus"),
            duration_s=duration_s,
            steps=steps,
            kind=model_kinds(table, "model", "batch_size", catalogue)
            if "model" in table.columns
            else [None] * len(submit_s),
        )
