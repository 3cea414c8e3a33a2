"""PowerFlow after the abstract of arXiv 2304.06381. The paper is public, but we had its abstract only: the formulas are
ours.

Jobs are admitted by shortest remaining time with one GPU each at its frequency of least energy. Then jobs are given
more GPUs or a higher frequency in steps of decreasing relative gain, (dT/T) / (dE/E), until the budget is used up.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hpctrip.cluster.models import Speeds
from hpctrip.cluster.schedulers.base import SCHEDULERS, ClusterView, Plan, Scheduler

_LEAST_COST = 1e-3
"""Lower bound of the relative energy cost of a step in the computation of its gain."""
_ROUNDING = 1e-9
"""Relative tolerance of budgets: what they are exactly enough for is not lost to rounding."""


@dataclass(frozen=True)
class Step:
    """A configuration, and the gain of the step that leads to it."""

    gpus: int
    frequency: int
    seconds: float
    """Time for a unit of work."""
    joules: float
    """Energy for a unit of work, including the share of the hosts."""
    gain: float
    """Relative decrease of time per relative increase of energy; inf for the first configuration."""

    @cached_property
    def watts(self) -> float:
        """Mean power while the job works."""
        return self.joules / self.seconds


class Ladder:
    """Efficient configurations of one type of job, from the least energy to the fastest.

    Each pair of a number of GPUs (1, 2, 4, ...) and a frequency is a point (E, T): energy and time for a unit of work.
    The ladder starts at one GPU at its frequency of least energy. Each step leads to the point with the largest
    relative gain, ln(T / T') / ln(E' / E), among all faster points. So the ladder follows the lower hull of the points,
    gains decrease from step to step, and dominated points are never used. As gains are relative, they are the same for
    all jobs of a type, regardless of their remaining work.
    """

    def __init__(self, speeds: Speeds, profile: int, host_w: float, most_gpus: int, frequencies: np.ndarray):
        """`host_w`: power of a host per GPU of the host. `frequencies`: indices of the permitted ones."""
        rate, power_w = speeds.rate[profile].tolist(), speeds.power_w[profile].tolist()
        self._points = [
            Step(gpus, x, 1 / rate[gpus][x], (power_w[gpus][x] + gpus * host_w) / rate[gpus][x], np.inf)
            for gpus in (1 << level for level in range(int(most_gpus).bit_length()))
            for x in frequencies.tolist()
        ]
        self._at_same_gpus: dict[tuple[int, int], tuple[Step, ...]] = {}
        self.start = min((p for p in self._points if p.gpus == 1), key=lambda p: p.joules)
        """First configuration: one GPU at its frequency of least energy."""
        self.whole = (self.start, *_climb(self.start, self._points))
        """Configurations over GPUs and frequencies, from `start` to the fastest."""

    def faster_on(self, step: Step) -> tuple[Step, ...]:
        """Configurations that follow a step if only the frequency may change."""
        key = (step.gpus, step.frequency)
        if key not in self._at_same_gpus:
            self._at_same_gpus[key] = tuple(_climb(step, [p for p in self._points if p.gpus == step.gpus]))
        return self._at_same_gpus[key]


def _climb(here: Step, points: list[Step]) -> list[Step]:
    steps = []
    while True:
        faster = [point for point in points if point.seconds < here.seconds * (1 - 1e-9)]
        if not faster:
            return steps
        here = max((_step_to(here, point) for point in faster), key=lambda step: (step.gain, -step.seconds))
        steps.append(here)


def _step_to(here: Step, there: Step) -> Step:
    cost = max(np.log(there.joules / here.joules), _LEAST_COST)
    gain = float(np.log(here.seconds / there.seconds) / cost)
    return Step(there.gpus, there.frequency, there.seconds, there.joules, gain)


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
        machine = view.machine
        host_w = machine.host_w / machine.gpus_per_node if self.counts_hosts else 0.0
        ladders = _ladders(view.speeds, host_w, machine.num_gpus, self.moves == "gpus")
        budget_j = math.inf
        if self.eta != "none":
            requested_s = view.time_s(view.requested, -1)
            requested_w = view.speeds.power_w[view.profile, view.requested, -1]
            requested_j = requested_s * requested_w + requested_s * view.requested * host_w
            budget_j = self.eta * float(requested_j.sum())
        ascent = Ascent(view, ladders, budget_j)
        gpus, frequency = ascent.run()
        grows = (view.gpus > 0) & (gpus > view.gpus)
        if grows.any():
            before_s, after_s = (view.time_s(np.maximum(n, 1), frequency) for n in (view.gpus, gpus))
            gpus = np.where(grows & (before_s - after_s < 2 * view.restart_s), view.gpus, gpus)
        return Plan(gpus, frequency, ascent.order)


@lru_cache(maxsize=8)
def _ladders(speeds: Speeds, host_w: float, num_gpus: int, one_frequency: bool) -> list[Ladder]:
    frequencies = np.arange(len(speeds.frequencies))[-1 if one_frequency else 0 :]
    most = np.minimum(speeds.most_gpus, num_gpus).tolist()
    return [Ladder(speeds, profile, host_w, gpus, frequencies) for profile, gpus in enumerate(most)]


@dataclass(eq=False, slots=True)
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
        self._joules, self._watts = budget_j * (1 + _ROUNDING), view.limit_w * (1 + _ROUNDING)
        self._groups: list[_JobGroup] = []
        self._heap: list[tuple[float, int, _JobGroup]] = []
        self._number = itertools.count()

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns [J] numbers of GPUs and [J] frequency indices."""
        self._admit()
        while self._heap and self._step(heapq.heappop(self._heap)[2]):
            pass
        gpus, frequency = np.zeros(len(self.view), int), self.view.frequency.copy()
        for group in self._groups:
            gpus[group.jobs], frequency[group.jobs] = group.step.gpus, group.step.frequency
        return gpus, frequency

    def _admit(self) -> None:
        """Admit the shortest jobs for which there are GPUs and power, grouped by profile.

        Their least energy is spent even beyond the energy budget, as no job can run with less.
        """
        profile, left = self.view.profile, self.view.left
        order = self.order[: self._free]
        if self._watts < math.inf:
            start_w = np.array([ladder.start.watts for ladder in self._ladders])
            order = order[np.cumsum(start_w[profile[order]]) <= self._watts]
        order = order[np.lexsort((order, -left[order], profile[order]))]
        kinds = profile[order].tolist()
        firsts = [at for at in range(len(kinds)) if at == 0 or kinds[at] != kinds[at - 1]]
        for first, end in itertools.pairwise([*firsts, len(kinds)]):
            ladder, jobs = self._ladders[kinds[first]], order[first:end]
            group = _JobGroup(ladder, ladder.start, ladder.whole[1:], jobs, self._total(jobs))
            self._free -= len(jobs)
            self._joules -= ladder.start.joules * group.left
            self._watts -= ladder.start.watts * len(jobs)
            self._add(group)

    def _add(self, group: _JobGroup) -> None:
        self._groups.append(group)
        self._enqueue(group)

    def _enqueue(self, group: _JobGroup) -> None:
        """Add a group to the heap by the gain of its next step, if it has one."""
        if group.later:
            heapq.heappush(self._heap, (-group.later[0].gain, next(self._number), group))

    def _step(self, group: _JobGroup) -> bool:
        """Apply the next step of a group to as many of its jobs as possible; false: the budget is used up."""
        there, here, number = group.later[0], group.step, len(group.jobs)
        more_gpus, more_w = there.gpus - here.gpus, there.watts - here.watts
        if more_gpus > 0 and self._free < more_gpus * number:
            number = self._free // more_gpus
            if not number:
                group.later = group.ladder.faster_on(here)
                self._enqueue(group)
                return True
            self._split(group, number, group.ladder.faster_on(here))
        cost_j = (there.joules - here.joules) * group.left
        if cost_j > self._joules or more_w * number > self._watts:
            self._split(group, self._affordable(group), ())
            group.step = there
            return False
        self._free -= more_gpus * number
        self._joules -= cost_j
        self._watts -= more_w * number
        group.step, group.later = there, group.later[1:]
        self._enqueue(group)
        return True

    def _affordable(self, group: _JobGroup) -> int:
        """Number of jobs of a group that can take its next step within the budget."""
        there, here = group.later[0], group.step
        costs_j = (there.joules - here.joules) * self.view.left[group.jobs]
        within = np.cumsum(costs_j) <= self._joules
        if (more_w := there.watts - here.watts) > 0:
            within &= np.arange(1, len(group.jobs) + 1) * more_w <= self._watts
        return len(within) if within.all() else int(np.argmin(within))

    def _split(self, group: _JobGroup, number: int, later: tuple[Step, ...]) -> None:
        """Keep the first `number` jobs of a group in it; the others form a group that may take the steps `later`."""
        rest = group.jobs[number:]
        self._add(_JobGroup(group.ladder, group.step, later, rest, self._total(rest)))
        group.jobs = group.jobs[:number]
        group.left = self._total(group.jobs)

    def _total(self, jobs: np.ndarray) -> float:
        return float(self.view.left[jobs].sum())
