"""Two schedulers at the same energy: PowerFlow's eta is searched for which it needs as much as a baseline.

An eta of the jobs that are here bounds no total, so the total is matched by bisection. It is a step function of eta;
what is found is the largest eta, to a relative precision, for which no more energy is used than by the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpctrip.cluster.rows import Result
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.schedulers.powerflow import PowerFlow

LOWEST, HIGHEST = 0.3, 4.0
"""Of eta, within which it is searched. Below the lowest nothing changes: jobs cannot do with less than one GPU."""


@dataclass(frozen=True)
class Match:
    """PowerFlow at the energy of a baseline."""

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


def matched(
    scenario: ClusterScenario,
    target_j: float,
    hosts: bool = True,
    precision: float = 0.01,
    simulated: Callable[[ClusterScenario], Result] = lambda scenario: scenario.simulator().run(),
) -> Match | None:
    """PowerFlow with the largest eta whose energy is at most `target_j`; None where the lowest needs more.

    `hosts`: whether hosts and idle GPUs are counted. `simulated` runs one scenario.
    """

    def tried(eta: float) -> Match:
        result = simulated(with_eta(scenario, eta, hosts))
        return Match(eta, result, counted_j(result, hosts))

    low, high = tried(LOWEST), tried(HIGHEST)
    if low.energy_j > target_j:
        return None
    if high.energy_j <= target_j:
        return high
    while high.eta / low.eta > 1 + precision and low.energy_j < target_j * (1 - precision / 2):
        middle = tried((low.eta * high.eta) ** 0.5)
        low, high = (middle, high) if middle.energy_j <= target_j else (low, middle)
    return low
