"""The jobs of a trace, as the simulator takes them: arrays over N jobs."""

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
    """[N]"""
    submit_s: np.ndarray
    """[N] not falling; the first is 0."""
    gpus: np.ndarray
    """[N] as the user asked for."""
    profile: np.ndarray
    """[N] index into `profiles`."""
    steps: np.ndarray
    """[N] work to do, in the profile's unit; NaN where only a duration is known."""
    duration_s: np.ndarray
    """[N] time with the GPUs that the user asked for, at the highest frequency; NaN where the work is known."""
    profiles: tuple[Profile, ...]
    synthetic: bool = False
    """Whether they were made up."""

    def __len__(self) -> int:
        return len(self.submit_s)

    def work(self, speeds: Speeds) -> np.ndarray:
        """[N] work to do; from a duration, as much as is done in it."""
        full_speed = speeds.rate[self.profile, self.gpus, -1]
        return np.where(np.isnan(self.steps), self.duration_s * full_speed, self.steps)

    def check_fit(self, num_gpus: int, place: str) -> None:
        """InputError where a job asks for more GPUs than the cluster has."""
        beyond = np.flatnonzero(self.gpus > num_gpus)
        if len(beyond):
            name, gpus = self.name[beyond[0]], self.gpus[beyond[0]]
            more = f" (and {len(beyond) - 1:,} more)" if len(beyond) > 1 else ""
            raise InputError(
                place,
                f"job {name!r} asks for {gpus:,} GPUs, the cluster has {num_gpus:,}{more}",
                "give the cluster more nodes, or set jobs.largest to leave larger jobs out",
            )
