"""Two schedulers at the same energy: PowerFlow's eta is searched for which it needs as much as a baseline.

An eta bounds the energy of the jobs that are here, not the total, and the total is no smooth and not always a rising
function of it. So several etas are simulated, more of them where the total passes the target, and the best is taken of
those that need no more than the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpctrip.cluster.rows import Result
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.schedulers.powerflow import PowerFlow

LOWEST, HIGHEST = 0.3, 8.0
"""Of eta. Below the lowest nothing changes: jobs cannot do with less than one GPU; nor does it above the highest."""
_COARSE = 16
"""Etas that are simulated at first, geometrically spaced."""


@dataclass(frozen=True)
class Match:
    """PowerFlow with one eta."""

    eta: float
    result: Result
    energy_j: float
    """As it is counted in this comparison."""


def counted_j(result: Result, hosts: bool) -> float:
    """Energy of a simulation, with hosts and idle GPUs or of the jobs' GPUs alone."""
    return result.energy_j if hosts else float(result.jobs.energy_j.sum())


def with_eta(scenario: ClusterScenario, eta: float, hosts: bool) -> ClusterScenario:
    """The scenario under PowerFlow."""
    return scenario.model_copy(update={"scheduler": PowerFlow(eta=eta, counts_hosts=hosts)})


class Front:
    """PowerFlow's completion times against energy for one scenario; what was simulated for one target serves the next.

    `hosts`: whether hosts and idle GPUs are counted. `simulated` runs one scenario.
    """

    def __init__(
        self,
        scenario: ClusterScenario,
        hosts: bool = True,
        precision: float = 0.01,
        simulated: Callable[[ClusterScenario], Result] = lambda scenario: scenario.simulator().run(),
    ):
        self._scenario, self._hosts, self._precision, self._simulated = scenario, hosts, precision, simulated
        self._known: dict[float, Match] = {}

    def best(self, target_j: float) -> Match | None:
        """The least average completion time with at most this energy; None where every eta needs more.

        Between neighbouring etas of which one needs more than the target and one does not, others are tried until the
        two are within the precision (relative) of each other.
        """
        etas = np.geomspace(LOWEST, HIGHEST, _COARSE).tolist()
        while etas:
            for eta in etas:
                self._tried(eta)
            etas = [
                (low * high) ** 0.5
                for low, high in pairwise(sorted(self._known))
                if high / low > 1 + self._precision
                and (self._tried(low).energy_j <= target_j) != (self._tried(high).energy_j <= target_j)
            ]
        within = [match for match in self._known.values() if match.energy_j <= target_j]
        return min(within, key=lambda match: (match.result.mean_jct_s, match.eta), default=None)

    def _tried(self, eta: float) -> Match:
        if eta not in self._known:
            result = self._simulated(with_eta(self._scenario, eta, self._hosts))
            self._known[eta] = Match(eta, result, counted_j(result, self._hosts))
        return self._known[eta]
