"""Job traces in published layouts and in hpctrip's own, and generated ones."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.text import unknown_name
from hpctrip.base.units import Seconds
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.traces.base import (
    LONGEST_S,
    TRACES,
    Raw,
    Trace,
    TraceFile,
    durations,
    gpu_counts,
    model_kinds,
    step_counts,
    submission_times,
)
from hpctrip.sim.times import column_us


@TRACES.add
class CsvJobs(TraceFile):
    """A CSV file with one line per job, sorted by time of submission.

    Required columns: submit_s, gpus, and duration_s (on these GPUs at the highest frequency) or steps, or both, of
    which each line fills exactly one. Optional columns: job, its name (default: its number, from 1), and model with
    batch_size (default: drawn among the models of the catalogue).
    """

    kind = "csv"

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line is a job."""
        table = self.table("submit_s", "gpus")
        submit_s, has = submission_times(table, "submit_s"), table.columns.keys()
        steps = duration_s = np.full(len(submit_s), np.nan)
        if "steps" in has:
            steps = step_counts(table, "steps", may_lack=True)
        if "steps" not in has or "duration_s" in has:
            duration_s = durations(table, "duration_s", may_lack=True)
        checked = "steps" if "steps" in has else "duration_s"
        both = np.isnan(steps) == np.isnan(duration_s)
        table.refuse(checked, both, "is not the one of steps and duration_s")
        return Raw(
            place=table.place,
            name=table.texts("job") if "job" in has else [str(line + 1) for line in range(len(submit_s))],
            submit_s=submit_s,
            gpus=gpu_counts(table, "gpus"),
            duration_s=duration_s,
            steps=steps,
            kind=model_kinds(table, "model", "batch_size", catalogue) if "model" in has else None,
        )


@TRACES.add
class ElasticFlow(TraceFile):
    """A trace of microsoft/elasticflow-traces (raw or with models) or of pkusys/ElasticFlow (ASPLOS 2023).

    Columns: job_id, submission_time or submit_time (s), num_gpu, duration (s); with models also num_iteration or
    iteration, model_name, batch_size. With models the steps are used, not the duration. Deadlines are ignored.
    """

    kind = "elasticflow"

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line is a job."""
        table = self.table()
        time = "submit_time" if "submit_time" in table.columns else "submission_time"
        has_models = "model_name" in table.columns
        table.require("job_id", time, "num_gpu", "duration", *(["batch_size"] if has_models else []))
        duration_s, steps, kinds = durations(table, "duration"), None, None
        if has_models:
            iterations = "iteration" if "iteration" in table.columns else "num_iteration"
            duration_s, steps = None, step_counts(table, iterations)
            kinds = model_kinds(table, "model_name", "batch_size", catalogue)
        return Raw(
            place=table.place,
            name=table.texts("job_id"),
            submit_s=submission_times(table, time),
            gpus=gpu_counts(table, "num_gpu"),
            duration_s=duration_s,
            steps=steps,
            kind=kinds,
        )


@TRACES.add
class Philly(TraceFile):
    """Microsoft's Philly trace (Jeon et al., ATC 2019) as summarised by AdaptDL: simulator/traces/philly.csv of
    petuum/adaptdl, branch osdi21-artifact, which is not sorted.

    Columns: timestamp (ISO 8601), duration (s; a line without one is left out), num_gpus, cluster. Models are drawn.
    """

    kind = "philly"
    clock = "dates"
    cluster: str | None = Field(None, max_length=100)
    """Virtual cluster whose jobs are used, e.g. "ee9e8c"; absent: all."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line with a duration is a job; it is named by its line."""
        table = self.table("timestamp", "duration", "num_gpus", "cluster")
        clusters = np.array(table.texts("cluster"))
        duration_s = durations(table, "duration", may_lack=True)
        submit_s = column_us(table, "timestamp") / 1e6
        gpus = gpu_counts(table, "num_gpus")
        chosen = ~np.isnan(duration_s)
        if self.cluster is not None:
            chosen &= clusters == self.cluster
            if not chosen.any():
                hint = unknown_name(self.cluster, set(clusters.tolist()))
                raise InputError(f"jobs.cluster = {self.cluster!r}", "has no job in the trace", hint)
        names = [f"line {line}" for line in table.lines[chosen]]
        return Raw(table.place, names, submit_s[chosen], gpus[chosen], duration_s[chosen])


@TRACES.add
class Openb(TraceFile):
    """Alibaba's openb trace of 2023 (Weng et al., ATC 2023), openb_pod_list_*.csv: pods on a cluster that shares GPUs.
    A pod is a job if it requests GPUs and was scheduled.

    Columns: name, num_gpu, creation_time, scheduled_time, deletion_time (s). A job lasts from scheduling to deletion.
    A pod that requests a part of a GPU (gpu_milli) gets a whole one, as GPUs are not shared here. Models are drawn.
    """

    kind = "openb"

    def raw(self, catalogue: Catalogue) -> Raw:
        """The pods that are jobs."""
        table = self.table("name", "num_gpu", "creation_time", "scheduled_time", "deletion_time")
        gpus = table.integers("num_gpu")
        table.refuse("num_gpu", (gpus < 0) | (gpus > 1024), "is not a number of GPUs from 0 to 1,024")
        created_s = submission_times(table, "creation_time", is_sorted=False)
        deleted_s = table.numbers("deletion_time")
        scheduled_s = table.numbers("scheduled_time", may_lack=True)
        ends_early = deleted_s < np.fmax(scheduled_s, created_s)
        table.refuse("deletion_time", ends_early, "is before the pod was there")
        jobs = (gpus > 0) & (deleted_s > scheduled_s)  # false for a pod that was never scheduled
        names = np.array(table.texts("name"), dtype=object)[jobs].tolist()
        return Raw(table.place, names, created_s[jobs], gpus[jobs], (deleted_s - scheduled_s)[jobs])


_GPUS = np.array([1, 2, 4, 8, 16])
_SHARES = np.array([0.60, 0.08, 0.18, 0.12, 0.02])
"""Shares of the jobs by number of GPUs, similar to ElasticFlow's testbed trace (118, 1, 45, 28 and 3 of 195)."""


@TRACES.add
class Synthetic(Trace):
    """Synthetic jobs: exponential gaps, log-normal durations, 1 to 16 GPUs, models drawn."""

    kind = "synthetic"
    synthetic = True
    clock = "none"
    num_jobs: int = Field(200, ge=1, le=1_000_000)
    """Number of jobs."""
    span_s: Seconds = Field(48 * 3600.0, gt=0, le=LONGEST_S)
    """Mean time over which the jobs are submitted."""
    median_s: Seconds = Field(2 * 3600.0, gt=0, le=1e8)
    """Median duration on the GPUs requested."""
    spread: float = Field(1.4, ge=0, le=3)
    """Standard deviation of the logarithm of the duration."""
    shortest_s: Seconds = Field(60.0, gt=0, le=1e8)
    """Minimum duration."""
    longest_s: Seconds = Field(7 * 24 * 3600.0, gt=0, le=LONGEST_S)
    """Maximum duration."""
    synthetic_seed: int = Field(0, ge=0)
    """Seed of the jobs; separate from the run's seed, so that all runs have the same jobs."""

    def replica(self, number: int) -> Self:
        """The trace with another seed; replica 0 is the trace itself."""
        return self.model_copy(update={"synthetic_seed": self.synthetic_seed + number})

    def raw(self, catalogue: Catalogue) -> Raw:
        """Draw the jobs from the stream (synthetic_seed, "jobs")."""
        draws = stream(self.synthetic_seed, "jobs")
        gaps_s = draws.exponential(self.span_s / self.num_jobs, self.num_jobs)
        gpus = draws.choice(_GPUS, self.num_jobs, p=_SHARES)
        duration_s = self.median_s * np.exp(self.spread * draws.standard_normal(self.num_jobs))
        return Raw(
            place="jobs",
            name=[str(job + 1) for job in range(self.num_jobs)],
            submit_s=np.cumsum(gaps_s) - gaps_s[0],
            gpus=gpus,
            duration_s=np.clip(duration_s, self.shortest_s, max(self.shortest_s, self.longest_s)),
        )
