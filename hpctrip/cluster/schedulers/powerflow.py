"""PowerFlow (arXiv 2304.06381) as its abstract describes it; the body is not public to us, so the formulas are ours.

Jobs are admitted by shortest remaining time with one GPU each at its frequency of least energy. Then moves over GPUs
and frequencies are made by falling relative gain, (dT/T) / (dE/E), until the budget stops them.
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
    """Elastic under a budget: the average completion time shall be least for a given energy.

    The budget of the moves is `eta` times the energy that the jobs that are here would need with the GPUs that users
    asked for at the highest frequency, and the power that [budget] allows, whichever is met first.
    """

    kind = "powerflow"
    periodic = True
    elastic = True
    eta: Annotated[float, Field(gt=0, le=1e6)] | Literal["none"] = 1.0
    """Share of that energy, or "none": power alone is the limit."""
    moves: Literal["gpus-and-frequency", "gpus"] = "gpus-and-frequency"
    """What a move may change. With "gpus" all jobs run at the highest frequency."""
    counts_hosts: bool = True
    """Whether the energy of a configuration holds its GPUs' share of their hosts' power."""

    def plan(self, view: ClusterView) -> Plan:
        """Admission and moves, with the old configuration kept where a new one gains less than two restarts."""
        ladders = self._ladders(view)
        walk = Walk(view, ladders, self._budget_j(view))
        gpus, frequency = walk.run()
        self._keep(view, gpus, frequency)
        return Plan(gpus, frequency, walk.order)

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

    def _keep(self, view: ClusterView, gpus: np.ndarray, frequency: np.ndarray) -> None:
        """A job grows only where that saves it more than two restarts."""
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
class _Group:
    """Jobs of one kind in one configuration, and the moves that they may still make."""

    ladder: Ladder
    step: Step
    later: tuple[Step, ...]
    jobs: np.ndarray
    """Those with the most work left first."""
    left: float
    """Work that is left of all of them."""


class Walk:
    """One walk of all jobs up their ladders, by falling gain. Jobs of one kind move together, as their gains are equal;
    where GPUs or the budget suffice for some of them only, those with the most work left go first."""

    def __init__(self, view: ClusterView, ladders: list[Ladder], budget_j: float):
        self.view, self._ladders = view, ladders
        one_gpu = np.array([ladder.start.seconds for ladder in ladders])
        self.order = np.argsort(view.left * one_gpu[view.profile], kind="stable")
        self._free = view.machine.num_gpus
        self._joules, self._watts = budget_j, view.limit_w
        self._arrived: list[_Group] = []
        self._heap: list[tuple[float, int, _Group]] = []
        self._number = itertools.count()

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        """[J] GPUs and [J] frequencies."""
        for group in self._admitted():
            self._line_up(group)
        goes_on = True
        while self._heap and goes_on:
            goes_on = self._move(heapq.heappop(self._heap)[2])
        gpus, frequency = np.zeros(len(self.view), int), self.view.frequency.copy()
        for group in (*self._arrived, *(group for _, _, group in self._heap)):
            gpus[group.jobs], frequency[group.jobs] = group.step.gpus, group.step.frequency
        return gpus, frequency

    def _admitted(self) -> list[_Group]:
        """The shortest jobs for which there are GPUs and power, by kind. The energy of these is spent at any rate: a
        job cannot do with less."""
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
            group = _Group(ladder, ladder.start, ladder.whole[1:], jobs, float(left[jobs].sum()))
            self._free -= len(jobs)
            self._joules -= ladder.start.joules * group.left
            self._watts -= ladder.start.watts * len(jobs)
            groups.append(group)
        return groups

    def _line_up(self, group: _Group) -> None:
        """The group waits for the turn of its next move, or has arrived."""
        if group.later:
            heapq.heappush(self._heap, (-group.later[0].gain, next(self._number), group))
        else:
            self._arrived.append(group)

    def _move(self, group: _Group) -> bool:
        """Let the jobs of a group make their next move, as many as can; false: the budget is used up."""
        there, here, number = group.later[0], group.step, len(group.jobs)
        more_gpus, more_w = there.gpus - here.gpus, there.watts - here.watts
        if more_gpus > 0 and self._free < more_gpus * number:
            fit = self._free // more_gpus
            on_the_same = self._part(group, slice(fit, None), here, group.ladder.faster_on(here))
            self._line_up(on_the_same)
            if not fit:
                return True
            group, number = self._part(group, slice(fit), here, group.later), fit
        cost_j = (there.joules - here.joules) * group.left
        if cost_j > self._joules or more_w * number > self._watts:
            number = self._affordable(group)
            self._arrived.append(self._part(group, slice(number, None), here, ()))
            self._arrived.append(self._part(group, slice(number), there, ()))
            return False
        self._free -= more_gpus * number
        self._joules -= cost_j
        self._watts -= more_w * number
        self._line_up(_Group(group.ladder, there, group.later[1:], group.jobs, group.left))
        return True

    def _affordable(self, group: _Group) -> int:
        """How many jobs of a group can make its next move within the budget."""
        there, here = group.later[0], group.step
        costs_j = (there.joules - here.joules) * self.view.left[group.jobs]
        within = np.cumsum(costs_j) <= self._joules
        if (more_w := there.watts - here.watts) > 0:
            within &= np.arange(1, len(group.jobs) + 1) * more_w <= self._watts
        return len(within) if within.all() else int(np.argmin(within))

    def _part(self, group: _Group, part: slice, step: Step, later: tuple[Step, ...]) -> _Group:
        jobs = group.jobs[part]
        return _Group(group.ladder, step, later, jobs, float(self.view.left[jobs].sum()))
