"""Centralized training: one datacenter that holds all the data, needs no WAN, and is limited by its power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class Centralized(Policy):
    """One site at distance 0 that holds all the data, its power capped (Sec. 5.1: at 25, 50, 100 %).

    Training without interruption over all the data that the sites would have held: its optimiser goes on from round to
    round, passes over the data go on where a round ends, and Eq. 2 over a cohort of one adds the update unchanged. So
    where a round ends only says how often the accuracy is read. No WAN loses anything, and no deadline is missed.
    """

    kind = "centralized"
    power_fraction: float = Field(0.25, gt=0, le=1)
    """The cap: the site's power fraction at all times."""
    rounds_per_epoch: int = Field(100, ge=1)
    """One pass over the data is cut into so many rounds, so that accuracy is read as often as with N sites (default:
    a round visits as many samples as one of the paper's 100 sites holds)."""

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
            "compression": {"kind": "none"},  # no WAN, nothing to compress for
            "train": {
                "local_epochs": 1 / self.rounds_per_epoch,
                "local_steps": None,
                "keep_optimizer": True,
            },
        }
