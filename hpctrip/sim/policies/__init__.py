"""Policies: which sites train in the next round, and how many. Every module of this package is imported."""

from hpctrip.config.component import import_all
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.view import SiteView

__all__ = ["POLICIES", "Decision", "Policy", "SiteView"]

import_all(__name__)
