"""The paper's policy: power-to-cost ranking, renewed every round, with the dynamic count."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from hpctrip.base.units import GB, Bytes
from hpctrip.config.component import Component
from hpctrip.sim.policies.base import POLICIES, Decision, Policy, best_first
from hpctrip.sim.policies.count import DynamicCount
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


class PowerToCost(Component):
    """Ranking by the power-to-cost score (Sec. 3.1, Eq. 8), whose weights follow the update size M.

    wc = M^s / (M^s + M0^s), wp = 1 - wc: small updates favour power, large ones favour closeness. The default score
    P^wp / L^wc is an interpretation: in a plain wp P / (wc L) the weights cancel from the ranking.
    """

    score: Literal["power-law", "difference"] = "power-law"
    """power-law: P^wp / L^wc. difference: wp P - wc L, both min-max normalised over the sites."""
    reference_bytes: Bytes = Field(1.5 * GB, gt=0)
    """M0: update size at which power and cost have the same weight."""
    steepness: float = Field(1.0, ge=0)
    """s: how fast the weights change with M; 0 keeps both at one half."""
    power_weight: float | None = Field(None, ge=0, le=1)
    """wp, fixed; absent: follows M."""

    def weights(self, update_bytes: float) -> tuple[float, float]:
        """(wp, wc) for an update of `update_bytes`."""
        if self.power_weight is not None:
            return self.power_weight, 1 - self.power_weight
        try:
            ratio = (update_bytes / self.reference_bytes) ** self.steepness
        except OverflowError:
            return 0.0, 1.0
        cost = ratio / (1 + ratio)
        return 1 - cost, cost

    def scores(self, sites: SiteView) -> np.ndarray:
        """Score of every site, [N]; larger is better."""
        power, cost = self.weights(sites.update_bytes)
        if self.score == "difference":
            return power * _min_max(sites.power_fraction) - cost * _min_max(sites.comm_s)
        # in logarithms, so that no power under- or overflows; a site without power comes last
        with np.errstate(divide="ignore"):
            log_power, log_cost = np.log(sites.power_fraction), np.log(sites.comm_s)
        # a weight of 0 leaves its side out, also where the logarithm is not finite
        gain = power * log_power if power else 0.0 * sites.power_fraction
        return gain - (cost * log_cost if cost else 0.0 * sites.comm_s)

    def rank(self, sites: SiteView) -> np.ndarray:
        """Site indices, best score first."""
        return best_first(self.scores(sites))


def _min_max(values: np.ndarray) -> np.ndarray:
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


@POLICIES.add
class PowerTrip(PowerToCost, DynamicCount, Policy):
    """Power-to-cost ranking x Algorithm 1 (Sec. 3)."""

    kind = "powertrip"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The best-ranked k* sites."""
        order = self.objective.order(self.scores(sites), sites, history)
        return self.decide(order, sites, history)
