"""Elastic schedulers give out GPUs one step at a time: whose next step is worth most gets it."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from hpctrip.cluster.view import ClusterView

Worth = Callable[[int, int, int], float]
"""What it is worth to give job i of the view n' GPUs instead of n: worth(i, n, n')."""


def doubled(gpus: int) -> int:
    """The next number of GPUs that fills buddy blocks."""
    return 2 * gpus


def one_more(gpus: int) -> int:
    """The next number of GPUs."""
    return gpus + 1


def grow(view: ClusterView, order: np.ndarray, following: Callable[[int], int], worth: Worth) -> np.ndarray:
    """[J] GPUs: one for each job in this order while there are some, then the step that is worth most for each GPU, as
    long as one is worth anything and fits. Ties to the earlier job.

    `worth` is asked for a job's next step only after the one before was taken, so a job stops growing where its next
    step is worth nothing. O(GPUs log J).
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
            gain = worth(job, now, then) / (then - now)
            if gain > 0:
                heapq.heappush(steps, (-gain, job, then))

    for job in admitted.tolist() if free else []:
        offer(job)
    while steps and free:
        _, job, then = heapq.heappop(steps)
        if then - gpus[job] <= free:
            free -= then - int(gpus[job])
            gpus[job] = then
            offer(job)
    return gpus
