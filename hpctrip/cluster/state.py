"""The jobs in motion: arrays over all N jobs. What a job has done is settled only when its configuration changes."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.jobs import Jobs
from hpctrip.cluster.profiles import Speeds
from hpctrip.cluster.rows import JobRows


class JobState:
    """Between changes a job's speed and power are constant, so what it has done follows from the time alone."""

    def __init__(self, jobs: Jobs, speeds: Speeds):
        num_jobs = len(jobs)
        self.jobs, self.speeds = jobs, speeds
        self.work = jobs.work(speeds)
        self._left = self.work.copy()
        self.gpus = np.zeros(num_jobs, int)
        self.nodes = np.zeros(num_jobs, int)
        self.frequency = np.full(num_jobs, len(speeds.frequencies) - 1)
        self.rate = np.zeros(num_jobs)
        self.draw_w = np.zeros(num_jobs)
        """[N] power of its configuration; drawn once its nodes are up."""
        self.power_w = np.zeros(num_jobs)
        """[N] what it draws now."""
        self.works_from_s = np.full(num_jobs, np.inf)
        """[N] when it gets on with its work: after the restart."""
        self.finish_s = np.full(num_jobs, np.inf)
        self._settled_s = np.zeros(num_jobs)
        self._energy_j, self._gpu_s, self._run_s = (np.zeros(num_jobs) for _ in range(3))
        self.start_s, self.end_s = np.full(num_jobs, np.nan), np.full(num_jobs, np.nan)
        self.starts, self.migrations = np.zeros(num_jobs, int), np.zeros(num_jobs, int)
        self._started_s = np.full(num_jobs, np.nan)

    def left_at(self, ids: np.ndarray, clock_s: float) -> np.ndarray:
        """[J] work that is left of these jobs."""
        worked_s = clock_s - np.maximum(self._settled_s[ids], self.works_from_s[ids])
        return np.maximum(self._left[ids] - self.rate[ids] * np.maximum(worked_s, 0.0), 0.0)

    def gpu_s_at(self, ids: np.ndarray, clock_s: float) -> np.ndarray:
        """[J] GPU-seconds that these jobs have had."""
        return self._gpu_s[ids] + self.gpus[ids] * (clock_s - self._settled_s[ids])

    def run_s_at(self, ids: np.ndarray, clock_s: float) -> np.ndarray:
        """[J] time that these jobs have had GPUs."""
        return self._run_s[ids] + (self.gpus[ids] > 0) * (clock_s - self._settled_s[ids])

    def settle(self, ids: np.ndarray, clock_s: float) -> None:
        """Write down what these jobs have done."""
        self._left[ids] = self.left_at(ids, clock_s)
        self._gpu_s[ids] = self.gpu_s_at(ids, clock_s)
        self._run_s[ids] = self.run_s_at(ids, clock_s)
        self._energy_j[ids] += self.power_w[ids] * (clock_s - self._settled_s[ids])
        self._settled_s[ids] = clock_s

    def stop(self, ids: np.ndarray, clock_s: float) -> None:
        """Take these jobs' GPUs; their work is kept. A start at this very time has not been."""
        self.settle(ids, clock_s)
        undone = ids[self._started_s[ids] == clock_s]
        self.starts[undone] -= 1
        self.start_s[undone[self.starts[undone] == 0]] = np.nan
        for values in (self.gpus, self.nodes, self.rate, self.draw_w, self.power_w):
            values[ids] = 0
        self.works_from_s[ids] = self.finish_s[ids] = np.inf

    def complete(self, ids: np.ndarray, clock_s: float) -> None:
        """These jobs are done."""
        self.stop(ids, clock_s)
        self._left[ids] = 0.0
        self.end_s[ids] = clock_s

    def start(
        self, job: int, gpus: int, nodes: int, clock_s: float, ready_s: float, restart_s: float
    ) -> None:
        """Give a job that has none GPUs, whose nodes are up at `ready_s`."""
        self._settled_s[job] = clock_s
        self.gpus[job], self.nodes[job] = gpus, nodes
        self.works_from_s[job] = ready_s + restart_s
        self._started_s[job] = clock_s
        self.starts[job] += 1
        if self.starts[job] == 1:
            self.start_s[job] = clock_s

    def configure(self, ids: np.ndarray, clock_s: float, are_up: np.ndarray | bool = True) -> None:
        """Speed and power of these jobs, which have been settled, by their GPUs and frequency."""
        rows = self.profile_rows(ids)
        self.rate[ids], self.draw_w[ids] = rows[0], rows[1]
        self.power_w[ids] = np.where(are_up, self.draw_w[ids], 0.0)
        from_s = np.maximum(self.works_from_s[ids], clock_s)
        self.finish_s[ids] = from_s + self._left[ids] / self.rate[ids]

    def wake(self, job: int, clock_s: float) -> None:
        """A job's nodes are up: from now on it draws power."""
        self.settle(np.array([job]), clock_s)
        self.power_w[job] = self.draw_w[job]

    def profile_rows(
        self, ids: np.ndarray, frequency: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, watts), [J] each, of jobs with GPUs; at another frequency than theirs, if given."""
        profile, gpus = self.jobs.profile[ids], self.gpus[ids]
        frequency = self.frequency[ids] if frequency is None else frequency
        rate = self.speeds.rate[profile, gpus, frequency]
        power_w = self.speeds.power_w[profile, gpus, frequency]
        spread = np.flatnonzero(self.nodes[ids] > self.speeds.fewest_nodes(gpus))
        for at in spread.tolist():
            found = self.speeds.at(int(profile[at]), int(gpus[at]), int(self.nodes[ids[at]]))
            rate[at], power_w[at] = found[0][frequency[at]], found[1][frequency[at]]
        return rate, power_w

    def rows(self, clock_s: float) -> JobRows:
        """What became of all jobs."""
        everyone = np.arange(len(self.jobs))
        self.settle(everyone, clock_s)
        return JobRows(
            job=everyone,
            name=list(self.jobs.name),
            profile=[self.jobs.profiles[profile].name for profile in self.jobs.profile.tolist()],
            gpus=self.jobs.gpus,
            work=self.work,
            submit_s=self.jobs.submit_s,
            start_s=self.start_s,
            end_s=self.end_s,
            jct_s=self.end_s - self.jobs.submit_s,
            run_s=self._run_s,
            gpu_s=self._gpu_s,
            energy_j=self._energy_j,
            starts=self.starts,
            migrations=self.migrations,
            work_left=self._left,
        )
