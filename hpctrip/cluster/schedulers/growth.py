"""Greedy allocation for elastic schedulers: the job whose next step has the largest gain grows first."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from hpctrip.cluster.view import ClusterView

Gain = Callable[[int, int, int], float]
"""gain(i, n, m): benefit of giving job i of the view m GPUs instead of n."""


def doubled(gpus: int) -> int:
    """Step rule: twice as many GPUs, which fills buddy blocks."""
    return 2 * gpus


def one_more(gpus: int) -> int:
    """Step rule: one more GPU."""
    return gpus + 1


def grow(view: ClusterView, order: np.ndarray, following: Callable[[int], int], gain: Gain) -> np.ndarray:
    """Allocate GPUs greedily; returns [J] numbers of GPUs.

    Each job gets one GPU in this order while GPUs last. Then the step with the largest gain per GPU is taken
    repeatedly, as long as a step has a positive gain and fits; ties go to the earlier job. `following` gives the next
    number of GPUs. `gain` is evaluated for a job's next step only after its previous step was taken, so a job stops
    growing at its first step without a gain. Takes O(GPUs log J).
    """
    gpus, free = np.zeros(len(view), int), view.machine.num_gpus
    admitted = order[:free]
    gpus[admitted] = 1
    free -= len(admitted)
    most = view.most_gpus()
    steps: list[tuple[float, int, int]] = []

    def offer(job: int) -> None:
        now = int(gpus[job])
        then = following(now)
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
    return gpus
