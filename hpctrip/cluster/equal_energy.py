"""Compares PowerFlow with a baseline at the same energy, by a search over PowerFlow's eta.

eta bounds the energy of the active jobs, not the total energy, and the total is neither a smooth nor always a rising
function of eta. So several values are simulated, more of them where the total crosses the target, and the best of
those is chosen that need no more energy than the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpctrip.cluster.rows import Result
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.schedulers.powerflow import PowerFlow

LOWEST, HIGHEST = 0.3, 8.0
"""Range of eta. Nothing changes below it, as a job needs at least one GPU, nor above it."""
_COARSE = 16
"""Number of values of eta that are simulated first, geometrically spaced."""
_ROUNDING = 1e-9
"""Relative difference below which two sums of energies are equal."""


@dataclass(frozen=True)
class Match:
    """A simulation under PowerFlow with one eta."""

    eta: float
    result: Result
    energy_j: float
    """Energy as counted in this comparison, see `counted_j`."""


def counted_j(result: Result, hosts: bool) -> float:
    """Energy of a simulation: of the whole cluster (`hosts`), or of the GPUs with a job alone."""
    return result.energy_j if hosts else float(result.jobs.energy_j.sum())


def with_eta(scenario: ClusterScenario, eta: float, hosts: bool) -> ClusterScenario:
    """The scenario under PowerFlow with this eta."""
    return scenario.model_copy(update={"scheduler": PowerFlow(eta=eta, counts_hosts=hosts)})


class Front:
    """Trade-off between completion time and energy of one scenario under PowerFlow; simulations are cached.

    `hosts`: whether the energy of hosts and idle GPUs counts. `precision`: relative spacing of eta at which the search
    ends.
    """

    def __init__(self, scenario: ClusterScenario, hosts: bool = True, precision: float = 0.01):
        self._scenario, self._hosts, self._precision = scenario, hosts, precision
        self._matches: dict[float, Match] = {}

    def best(self, target_j: float) -> Match | None:
        """The match with the least average completion time within this energy; None if every eta needs more.

        Between neighbouring values of eta of which exactly one stays within the target, further values are simulated
        until the two differ by less than the precision.
        """
        etas = np.geomspace(LOWEST, HIGHEST, _COARSE).tolist()
        while etas:
            for eta in (eta for eta in etas if eta not in self._matches):
                result = with_eta(self._scenario, eta, self._hosts).simulator().run()
                self._matches[eta] = Match(eta, result, counted_j(result, self._hosts))
            most_j = target_j * (1 + _ROUNDING)
            within = {eta: match for eta, match in self._matches.items() if match.energy_j <= most_j}
            etas = [
                (low * high) ** 0.5
                for low, high in pairwise(sorted(self._matches))
                if high / low > 1 + self._precision and (low in within) != (high in within)
            ]
        return min(within.values(), key=lambda match: (match.result.mean_jct_s, match.eta), default=None)
