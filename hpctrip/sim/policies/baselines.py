"""The paper's baselines (Sec. 3.2, 5.1), each one rule for which sites and how many, and the ranking by return time.

All are stateless: the same sites come first in every round in which the view is the same. Shapes: N sites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import MILE_M, Metres
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.policies.powertrip import PowerToCost
from hpctrip.sim.rounds import History
from hpctrip.sim.timing import return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class AllSites(Policy):
    """All sites (Sec. 3.2: select all sites)."""

    kind = "all"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """All N sites."""
        return Decision(np.arange(len(sites)))


@POLICIES.add
class Random(Policy):
    """k sites, every set equally likely (Sec. 5.1: random selection)."""

    kind = "random"
    k: int = Field(10, ge=1)
    """Cohort size."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """k distinct sites, drawn anew every round."""
        return Decision(rng.choice(len(sites), self.k, replace=False))


@POLICIES.add
class FixedRadius(Policy):
    """Every site with d <= radius, nearest first (Sec. 5.1: 1000 miles)."""

    kind = "fixed-radius"
    radius_m: Metres = Field(1000 * MILE_M, gt=0)
    """The radius."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The same sites every round. InputError where the radius holds none."""
        inside = np.flatnonzero(sites.distance_m <= self.radius_m)
        if len(inside) == 0:
            raise InputError(
                f"policy.radius_m = {self.radius_m / MILE_M:g} mi",
                "no site lies inside",
                f"the nearest is at {sites.distance_m.min() / MILE_M:.0f} mi",
            )
        return Decision(inside[np.argsort(sites.distance_m[inside], kind="stable")])


@POLICIES.add
class HighestPower(FixedOrDynamic):
    """Sites ranked only by power (Sec. 3.1); k sites, or as many as Algorithm 1 chooses."""

    kind = "highest-power"

    def log_score(self, sites: SiteView) -> np.ndarray:
        """ln P_i, [N]."""
        return np.log(sites.power_fraction)


@POLICIES.add
class LowestLatency(FixedOrDynamic):
    """Sites ranked only by delay (Sec. 3.1); k sites, or as many as Algorithm 1 chooses."""

    kind = "lowest-latency"

    def log_score(self, sites: SiteView) -> np.ndarray:
        """-ln L_i, [N]."""
        return -np.log(sites.comm_s)


@POLICIES.add
class FirstBack(FixedOrDynamic):
    """Sites ranked by finishing time c_i / P_i + L_i, instead of a mix of power and cost; k sites, or as many as
    Algorithm 1 chooses."""

    kind = "first-back"

    @property
    def rules(self) -> int:  # type: ignore[override]
        """One more than the count's: a site that would miss the deadline comes last, and the objective's preference
        counts."""
        return 1 + super().rules

    def log_score(self, sites: SiteView) -> np.ndarray:
        """-ln of the return time, [N]."""
        return -np.log(return_s(sites, self.k or 1))


@POLICIES.add
class Static(PowerToCost, Policy):
    """The top k sites by power-to-cost at the start, the same cohort for the whole run (Sec. 3.2).

    The paper's static-optimal is this policy with the best k of an offline sweep (Eq. 9). The script
    slurm/emnist_static_sweep.sh runs the sweep, and `hpctrip plot sweep` prints the best k.
    """

    kind = "static"
    k: int = Field(70, ge=1)
    """Cohort size."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The first round's cohort, again and again."""
        first = history.rows[0].cohort.site if history.rows else self.rank(sites)[: self.k]
        return Decision(first)


@POLICIES.add
class Centralized(Policy):
    """One site at distance 0 that holds all the data, its power capped (Sec. 5.1: at 25, 50, 100 %).

    Uninterrupted training on all the data of the sites: optimiser and passes over the data continue from round to
    round, and Eq. 2 over a cohort of one adds the update unchanged. So the length of a round only sets how often the
    accuracy is evaluated. There are no WAN losses or missed deadlines.
    """

    kind = "centralized"
    power_fraction: float = Field(0.25, gt=0, le=1)
    """The cap: the site's power fraction at all times."""
    rounds_per_epoch: int = Field(100, ge=1)
    """Number of rounds per pass over the data, so that accuracy is evaluated as often as with N sites (default: a
    round visits as many samples as one of the paper's 100 sites has)."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The one site."""
        return Decision(np.zeros(1, dtype=np.int64))

    def replaces(self, num_sites: Callable[[], int]) -> dict[str, dict[str, Any]]:
        """The one-site world; each table named replaces or updates that of the input."""
        return {
            "sites": {"kind": "uniform", "num_sites": 1, "min_distance_m": 0.0, "max_distance_m": 0.0},
            "power": {"kind": "constant", "fraction": self.power_fraction},
            "partition": {"pooled_sites": num_sites()},
            "network": {"update_bytes": 0.0, "aggregator_bandwidth_bps": None},
            "faults": {
                "deadline_s": None,
                "mtbf_s": None,
                "outages": None,
                "lost_fraction": 0.0,
                "late_fraction": 0.0,
            },
            "availability": {},
            "compression": {"kind": "none"},  # no WAN, nothing to compress for
            "train": {
                "local_epochs": 1 / self.rounds_per_epoch,
                "local_steps": None,
                "keep_optimizer": True,
            },
        }
