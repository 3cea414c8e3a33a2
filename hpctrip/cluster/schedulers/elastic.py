"""Elastic schedulers: each job gets one GPU, then the job whose next step has the largest gain grows first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import cache

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, ClusterView, Plan, Scheduler


def grow(
    view: ClusterView, order: np.ndarray, gain: Callable[[int, int, int], float], doubling: bool = True
) -> Plan:
    """Allocate GPUs greedily.

    Each job gets one GPU in this order while GPUs last. Then the step with the largest gain per GPU is taken
    repeatedly, as long as a step has a positive gain and fits; ties go to the earlier job. A step doubles the GPUs of a
    job, which fills buddy blocks, or adds one. `gain(i, n, m)` is the benefit of giving job i of the view m GPUs
    instead of n. It is evaluated for a job's next step only after its previous step was taken, so a job stops growing
    at its first step without a gain. Takes O(GPUs log J).
    """
    gpus, free = np.zeros(len(view), int), view.machine.num_gpus
    admitted = order[:free]
    gpus[admitted] = 1
    free -= len(admitted)
    most = view.most_gpus()
    steps: list[tuple[float, int, int]] = []

    def offer(job: int) -> None:
        now = int(gpus[job])
        then = 2 * now if doubling else now + 1
        if then <= most[job]:
            gain_per_gpu = gain(job, now, then) / (then - now)
            if gain_per_gpu > 0:
                heapq.heappush(steps, (-gain_per_gpu, job, then))

    for job in admitted.tolist() if free else []:
        offer(job)
    while steps and free:
        _, job, then = heapq.heappop(steps)
        if then - gpus[job] <= free:
            free -= then - int(gpus[job])
            gpus[job] = then
            offer(job)
    return Plan(gpus, order=order)


@SCHEDULERS.add
class Optimus(Scheduler):
    """Optimus (Peng et al., EuroSys 2018). Elastic: gives each job one GPU, then repeats the step that shortens the
    remaining time most per GPU.

    The exact lengths of jobs are used; Optimus predicts them.
    """

    kind = "optimus"
    periodic = True
    elastic = True
    doubling: bool = True
    """Whether each step doubles a job's GPUs, which fills buddy blocks; false: one more GPU, as in Optimus."""

    def plan(self, view: ClusterView) -> Plan:
        """GPUs by the time that they save; the shortest jobs come first if there are more jobs than GPUs."""
        times_s = cache(lambda gpus: view.time_s(np.full(len(view), gpus)).tolist())

        def saved_s(job: int, now: int, then: int) -> float:
            return times_s(now)[job] - times_s(then)[job]

        return grow(view, view.shortest_first(), saved_s, self.doubling)


@SCHEDULERS.add
class ElasticFlowLike(Scheduler):
    """After ElasticFlow (Gu et al., ASPLOS 2023), without deadlines. Elastic: gives each job one GPU, shortest first,
    then repeats the doubling that loses the least GPU-time.

    ElasticFlow admits jobs by their deadlines and shares the remaining GPUs by marginal return. Jobs have no deadlines
    here, so all are admitted and only the second step remains: the job whose speed on 2n GPUs is the largest fraction
    of twice its speed on n GPUs is doubled first. The order of admission is ours.
    """

    kind = "elasticflow-like"
    elastic = True

    def plan(self, view: ClusterView) -> Plan:
        """GPUs by the scaling of each job; a doubling that would not make a job faster is not taken."""
        rate, profile = view.speeds.rate[:, :, -1], view.profile.tolist()

        def scaling(job: int, now: int, then: int) -> float:
            faster = rate[profile[job], then] / rate[profile[job], now]
            return (then - now) * float(faster) if faster > 1 else 0.0

        return grow(view, view.shortest_first(), scaling)


@SCHEDULERS.add
class PolluxGreedy(Scheduler):
    """After Pollux (Qiao et al., OSDI 2021). Elastic: maximises the power mean, p = -1, of the jobs' speed-ups over
    their fair shares.

    A greedy ascent replaces Pollux's genetic search over 100 generations. As in Pollux, the speed-up of a resized job
    is multiplied by (age - delay x restarts) / (age + delay), where delay is the restart time. Goodput is the rate of
    the profile, which is throughput unless the job adapts its batch size.
    """

    kind = "pollux-greedy"
    periodic = True
    elastic = True
    doubling: bool = True
    """Whether each step doubles a job's GPUs, which fills buddy blocks; false: one more GPU."""

    def plan(self, view: ClusterView) -> Plan:
        """GPUs that minimise the sum of 1 / speed-up; jobs with the fewest GPU-seconds come first."""
        fair = np.clip(-(-view.machine.num_gpus // max(len(view), 1)), 1, view.most_gpus())
        rate, profile = view.speeds.rate[:, :, -1], view.profile.tolist()
        fair_rate = view.rate(fair, -1)
        age_s, delay_s = view.clock_s - view.submit_s, view.restart_s
        restart_factor = np.maximum(age_s - view.starts * delay_s, 0.0) / np.maximum(age_s + delay_s, 1e-9)
        present = view.gpus.tolist()

        def unfitness(job: int, gpus: int) -> float:
            resized = present[job] and gpus != present[job]
            factor = max(float(restart_factor[job]), 1e-6) if resized else 1.0
            return float(fair_rate[job]) / (float(rate[profile[job], gpus]) * factor)

        def gain(job: int, now: int, then: int) -> float:
            if present[job] > now:  # up to its present number of GPUs a job needs no restart
                rates = rate[profile[job]]
                return float(fair_rate[job]) * float(1 / rates[now] - 1 / rates[then])
            return unfitness(job, now) - unfitness(job, then)

        return grow(view, np.lexsort((view.submit_s, view.gpu_s)), gain, self.doubling)
