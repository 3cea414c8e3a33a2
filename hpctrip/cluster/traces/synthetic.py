"""Generator of synthetic jobs."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field

from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.traces.base import LONGEST_S, TRACES, Raw, Trace, not_recorded

_GPUS = np.array([1, 2, 4, 8, 16])
_SHARES = np.array([0.60, 0.08, 0.18, 0.12, 0.02])
"""Shares of the jobs by number of GPUs, similar to ElasticFlow's testbed trace (118, 1, 45, 28 and 3 of 195)."""


@TRACES.add
class Synthetic(Trace):
    """Synthetic jobs: exponential gaps, log-normal durations, 1 to 16 GPUs, models drawn."""

    kind = "synthetic"
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
            steps=not_recorded(self.num_jobs),
            kind=[None] * self.num_jobs,
            synthetic=True,
        )
