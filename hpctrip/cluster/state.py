"""Progress of the jobs during a simulation, as arrays over all N jobs."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.models import Speeds
from hpctrip.cluster.placement import Machine
from hpctrip.cluster.rows import JobRows
from hpctrip.cluster.schedulers import ClusterView
from hpctrip.cluster.traces.base import Jobs


class JobState:
    """GPUs, speed, power and progress of all jobs.

    The speed and power of a job are constant between changes of its configuration, so its progress is added up
    (`settle`) only when the configuration changes.
    """

    def __init__(self, jobs: Jobs, speeds: Speeds):
        num_jobs = len(jobs)
        self.jobs, self.speeds = jobs, speeds
        self.work = jobs.work(speeds)
        self.work_left = self.work.copy()
        self.gpus = np.zeros(num_jobs, int)
        self.nodes = np.zeros(num_jobs, int)
        self.frequency = np.full(num_jobs, len(speeds.frequencies) - 1)
        self.rate = np.zeros(num_jobs)
        self.draw_w = np.zeros(num_jobs)
        """[N] power of a job's configuration, drawn once its nodes have booted."""
        self.power_w = np.zeros(num_jobs)
        """[N] present power."""
        self.works_from_s = np.full(num_jobs, np.inf)
        """[N] end of the restart, from which time the job makes progress."""
        self.finish_s = np.full(num_jobs, np.inf)
        self._settled_s = np.zeros(num_jobs)
        self.energy_j, self.gpu_s, self.run_s = (np.zeros(num_jobs) for _ in range(3))
        self.start_s, self.end_s = np.full(num_jobs, np.nan), np.full(num_jobs, np.nan)
        self.starts, self.migrations = np.zeros(num_jobs, int), np.zeros(num_jobs, int)
        self._started_s = np.full(num_jobs, np.nan)

    def left_at(self, ids: np.ndarray, clock_s: float) -> np.ndarray:
        """[J] remaining work of these jobs."""
        worked_s = clock_s - np.maximum(self._settled_s[ids], self.works_from_s[ids])
        return np.maximum(self.work_left[ids] - self.rate[ids] * np.maximum(worked_s, 0.0), 0.0)

    def gpu_s_at(self, ids: np.ndarray, clock_s: float) -> np.ndarray:
        """[J] GPU-seconds of these jobs up to `clock_s`."""
        return self.gpu_s[ids] + self.gpus[ids] * (clock_s - self._settled_s[ids])

    def run_s_at(self, ids: np.ndarray, clock_s: float) -> np.ndarray:
        """[J] time that these jobs have had GPUs, up to `clock_s`."""
        return self.run_s[ids] + (self.gpus[ids] > 0) * (clock_s - self._settled_s[ids])

    def settle(self, ids: np.ndarray, clock_s: float) -> None:
        """Add up the progress, GPU time and energy of these jobs up to `clock_s`."""
        self.work_left[ids] = self.left_at(ids, clock_s)
        self.gpu_s[ids] = self.gpu_s_at(ids, clock_s)
        self.run_s[ids] = self.run_s_at(ids, clock_s)
        self.energy_j[ids] += self.power_w[ids] * (clock_s - self._settled_s[ids])
        self._settled_s[ids] = clock_s

    def stop(self, ids: np.ndarray, clock_s: float) -> None:
        """Take the GPUs of these jobs without loss of work. A start at this same time is not counted."""
        if not len(ids):
            return
        self.settle(ids, clock_s)
        cancelled = ids[self._started_s[ids] == clock_s]
        self.starts[cancelled] -= 1
        self.start_s[cancelled[self.starts[cancelled] == 0]] = np.nan
        for values in (self.gpus, self.nodes, self.rate, self.draw_w, self.power_w):
            values[ids] = 0
        self.works_from_s[ids] = self.finish_s[ids] = np.inf

    def complete(self, ids: np.ndarray, clock_s: float) -> None:
        """Mark these jobs as completed."""
        self.stop(ids, clock_s)
        self.work_left[ids] = 0.0
        self.end_s[ids] = clock_s

    def start(
        self, job: int, gpus: int, nodes: int, clock_s: float, ready_s: float, restart_s: float
    ) -> None:
        """Start a waiting job on `gpus` GPUs of `nodes` nodes, which have booted at `ready_s`."""
        self._settled_s[job] = clock_s
        self.gpus[job], self.nodes[job] = gpus, nodes
        self.works_from_s[job] = ready_s + restart_s
        self._started_s[job] = clock_s
        self.starts[job] += 1
        if self.starts[job] == 1:
            self.start_s[job] = clock_s

    def configure(self, ids: np.ndarray, clock_s: float, are_up: np.ndarray | bool) -> None:
        """Set the speed, power and finish time of these settled jobs from their GPUs and frequencies.

        `are_up`: whether their nodes have booted.
        """
        rows = self.profile_rows(ids)
        self.rate[ids], self.draw_w[ids] = rows[0], rows[1]
        self.power_w[ids] = np.where(are_up, self.draw_w[ids], 0.0)
        from_s = np.maximum(self.works_from_s[ids], clock_s)
        self.finish_s[ids] = from_s + self.work_left[ids] / self.rate[ids]

    def profile_rows(
        self, ids: np.ndarray, frequency: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, watts), [J] each, of jobs with GPUs, at `frequency` [J] or at their own frequencies."""
        profile, gpus = self.jobs.profile[ids], self.gpus[ids]
        frequency = self.frequency[ids] if frequency is None else frequency
        rate = self.speeds.rate[profile, gpus, frequency]
        power_w = self.speeds.power_w[profile, gpus, frequency]
        spread = np.flatnonzero(self.nodes[ids] > self.speeds.fewest_nodes(gpus))
        for at in spread.tolist():
            rates, powers_w = self.speeds.at(int(profile[at]), int(gpus[at]), int(self.nodes[ids[at]]))
            rate[at], power_w[at] = rates[frequency[at]], powers_w[frequency[at]]
        return rate, power_w

    def view(
        self, ids: np.ndarray, clock_s: float, machine: Machine, restart_s: float, limit_w: float
    ) -> ClusterView:
        """The scheduler's view of these jobs, which are submitted and not completed."""
        return ClusterView(
            clock_s=clock_s,
            machine=machine,
            speeds=self.speeds,
            restart_s=restart_s,
            limit_w=limit_w,
            job=ids,
            submit_s=self.jobs.submit_s[ids],
            requested=self.jobs.gpus[ids],
            profile=self.jobs.profile[ids],
            left=self.left_at(ids, clock_s),
            gpus=self.gpus[ids],
            frequency=self.frequency[ids],
            gpu_s=self.gpu_s_at(ids, clock_s),
            run_s=self.run_s_at(ids, clock_s),
            starts=self.starts[ids],
        )

    def rows(self, clock_s: float) -> JobRows:
        """The rows of all jobs in the results file."""
        all_jobs = np.arange(len(self.jobs))
        self.settle(all_jobs, clock_s)
        recorded = (
            *("work", "work_left", "start_s", "end_s", "run_s"),
            *("gpu_s", "energy_j", "starts", "migrations"),
        )
        return JobRows(
            job=all_jobs,
            name=list(self.jobs.name),
            profile=[self.jobs.profiles[profile].name for profile in self.jobs.profile.tolist()],
            gpus=self.jobs.gpus,
            submit_s=self.jobs.submit_s,
            jct_s=self.end_s - self.jobs.submit_s,
            **{name: getattr(self, name) for name in recorded},
        )
