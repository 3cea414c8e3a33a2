"""PowerFlow (arXiv 2304.06381) after its abstract; only the abstract was available, so the formulas are ours.

Jobs are admitted by shortest remaining time with one GPU each at its frequency of least energy. Then jobs are given
more GPUs or a higher frequency in steps of decreasing relative gain, (dT/T) / (dE/E), until the budget is used up.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hpctrip.cluster.profiles import Speeds
from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.ladders import Ladder, Step
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class PowerFlow(Scheduler):
    """Elastic: minimises the average completion time under an energy budget.

    Steps are limited by `eta` times the energy that the active jobs would need with the GPUs requested at the highest
    frequency, and by the power that [budget] permits.
    """

    kind = "powerflow"
    periodic = True
    elastic = True
    eta: Annotated[float, Field(gt=0, le=1e6)] | Literal["none"] = 1.0
    """Fraction of that energy, or "none": power alone is limited."""
    moves: Literal["gpus-and-frequency", "gpus"] = "gpus-and-frequency"
    """Quantities that a step may change. With "gpus" all jobs run at the highest frequency."""
    counts_hosts: bool = True
    """Whether the energy of a configuration includes its GPUs' share of the power of their hosts."""

    def plan(self, view: ClusterView) -> Plan:
        """Admission and steps; a job keeps its number of GPUs if growing would save less than two restarts."""
        ladders = self._ladders(view)
        ascent = Ascent(view, ladders, self._budget_j(view))
        gpus, frequency = ascent.run()
        self._undo_small_growth(view, gpus, frequency)
        return Plan(gpus, frequency, ascent.order)

    def _ladders(self, view: ClusterView) -> list[Ladder]:
        machine = view.machine
        host_w = machine.host_w / machine.gpus_per_node if self.counts_hosts else 0.0
        return _ladders(view.speeds, host_w, machine.num_gpus, self.moves == "gpus")

    def _budget_j(self, view: ClusterView) -> float:
        if self.eta == "none":
            return math.inf
        host_w = view.machine.host_w / view.machine.gpus_per_node if self.counts_hosts else 0.0
        asked_j = view.energy_j(view.requested) + view.time_s(view.requested) * view.requested * host_w
        return self.eta * float(asked_j.sum())

    def _undo_small_growth(self, view: ClusterView, gpus: np.ndarray, frequency: np.ndarray) -> None:
        """Restore, in place, the GPUs of jobs that would grow but save less time than two restarts take."""
        grows = (view.gpus > 0) & (gpus > view.gpus)
        saved_s = view.time_s(np.maximum(view.gpus, 1), frequency) - view.time_s(
            np.maximum(gpus, 1), frequency
        )
        stays = grows & (saved_s < 2 * view.restart_s)
        gpus[stays] = view.gpus[stays]


@lru_cache(maxsize=8)
def _ladders(speeds: Speeds, host_w: float, num_gpus: int, one_frequency: bool) -> list[Ladder]:
    frequencies = np.arange(len(speeds.frequencies))[-1 if one_frequency else 0 :]
    most = np.minimum(speeds.most_gpus, num_gpus).tolist()
    return [Ladder(speeds, profile, host_w, gpus, frequencies) for profile, gpus in enumerate(most)]


@dataclass(frozen=True)
class _JobGroup:
    """Jobs of one profile in one configuration, and the steps that they may still take."""

    ladder: Ladder
    step: Step
    later: tuple[Step, ...]
    jobs: np.ndarray
    """Jobs of the view, those with the most remaining work first."""
    left: float
    """Total remaining work of the jobs."""


class Ascent:
    """Greedy ascent of all jobs along their ladders, by decreasing gain.

    Jobs of one profile step together, as their gains are equal. If GPUs or the budget suffice for some of them only,
    those with the most remaining work step first.
    """

    def __init__(self, view: ClusterView, ladders: list[Ladder], budget_j: float):
        self.view, self._ladders = view, ladders
        one_gpu = np.array([ladder.start.seconds for ladder in ladders])
        self.order = np.argsort(view.left * one_gpu[view.profile], kind="stable")
        self._free = view.machine.num_gpus
        self._joules, self._watts = budget_j, view.limit_w
        self._final: list[_JobGroup] = []
        self._heap: list[tuple[float, int, _JobGroup]] = []
        self._number = itertools.count()

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns [J] numbers of GPUs and [J] frequency indices."""
        for group in self._admitted():
            self._enqueue(group)
        within_budget = True
        while self._heap and within_budget:
            within_budget = self._step(heapq.heappop(self._heap)[2])
        gpus, frequency = np.zeros(len(self.view), int), self.view.frequency.copy()
        for group in (*self._final, *(group for _, _, group in self._heap)):
            gpus[group.jobs], frequency[group.jobs] = group.step.gpus, group.step.frequency
        return gpus, frequency

    def _admitted(self) -> list[_JobGroup]:
        """The shortest jobs for which there are GPUs and power, grouped by profile.

        Their least energy is spent even beyond the energy budget, as no job can run with less.
        """
        profile, left = self.view.profile, self.view.left
        order = self.order[: self._free]
        if self._watts < math.inf:
            start_w = np.array([ladder.start.watts for ladder in self._ladders])
            order = order[np.cumsum(start_w[profile[order]]) <= self._watts]
        order = order[np.lexsort((order, -left[order], profile[order]))]
        kinds, firsts = np.unique(profile[order], return_index=True)
        groups = []
        for kind, jobs in zip(kinds.tolist(), np.split(order, firsts[1:]), strict=True) if len(order) else ():
            ladder = self._ladders[kind]
            group = _JobGroup(ladder, ladder.start, ladder.whole[1:], jobs, float(left[jobs].sum()))
            self._free -= len(jobs)
            self._joules -= ladder.start.joules * group.left
            self._watts -= ladder.start.watts * len(jobs)
            groups.append(group)
        return groups

    def _enqueue(self, group: _JobGroup) -> None:
        """Add a group to the heap by the gain of its next step, or to the final groups if it has none."""
        if group.later:
            heapq.heappush(self._heap, (-group.later[0].gain, next(self._number), group))
        else:
            self._final.append(group)

    def _step(self, group: _JobGroup) -> bool:
        """Apply the next step of a group to as many of its jobs as possible; false: the budget is used up."""
        there, here, number = group.later[0], group.step, len(group.jobs)
        more_gpus, more_w = there.gpus - here.gpus, there.watts - here.watts
        if more_gpus > 0 and self._free < more_gpus * number:
            fit = self._free // more_gpus
            frequency_only = self._subgroup(group, slice(fit, None), here, group.ladder.faster_on(here))
            self._enqueue(frequency_only)
            if not fit:
                return True
            group, number = self._subgroup(group, slice(fit), here, group.later), fit
        cost_j = (there.joules - here.joules) * group.left
        if cost_j > self._joules or more_w * number > self._watts:
            number = self._affordable(group)
            self._final.append(self._subgroup(group, slice(number, None), here, ()))
            self._final.append(self._subgroup(group, slice(number), there, ()))
            return False
        self._free -= more_gpus * number
        self._joules -= cost_j
        self._watts -= more_w * number
        self._enqueue(_JobGroup(group.ladder, there, group.later[1:], group.jobs, group.left))
        return True

    def _affordable(self, group: _JobGroup) -> int:
        """Number of jobs of a group that can take its next step within the budget."""
        there, here = group.later[0], group.step
        costs_j = (there.joules - here.joules) * self.view.left[group.jobs]
        within = np.cumsum(costs_j) <= self._joules
        if (more_w := there.watts - here.watts) > 0:
            within &= np.arange(1, len(group.jobs) + 1) * more_w <= self._watts
        return len(within) if within.all() else int(np.argmin(within))

    def _subgroup(self, group: _JobGroup, part: slice, step: Step, later: tuple[Step, ...]) -> _JobGroup:
        jobs = group.jobs[part]
        return _JobGroup(group.ladder, step, later, jobs, float(self.view.left[jobs].sum()))
