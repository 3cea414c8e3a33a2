"""The jobs of a simulation, as arrays over N jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.cluster.profiles import Profile, Speeds


@dataclass(frozen=True)
class Jobs:
    """N jobs in the order of their submission."""

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
    synthetic: bool = False
    """Whether the jobs were generated."""

    def __len__(self) -> int:
        return len(self.submit_s)

    def work(self, speeds: Speeds) -> np.ndarray:
        """[N] total work. A duration is converted at the speed on the requested GPUs at the highest frequency."""
        full_speed = speeds.rate[self.profile, self.gpus, -1]
        return np.where(np.isnan(self.steps), self.duration_s * full_speed, self.steps)

    def check_fit(self, num_gpus: int, place: str) -> None:
        """Raise InputError at `place` if a job requests more GPUs than the cluster has."""
        beyond = np.flatnonzero(self.gpus > num_gpus)
        if len(beyond):
            name, gpus = self.name[beyond[0]], self.gpus[beyond[0]]
            more = f" (and {len(beyond) - 1:,} more)" if len(beyond) > 1 else ""
            raise InputError(
                place,
                f"job {name!r} asks for {gpus:,} GPUs, the cluster has {num_gpus:,}{more}",
                "give the cluster more nodes, or set jobs.largest to leave larger jobs out",
            )
