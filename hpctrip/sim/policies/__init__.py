"""Policies: which sites, and how many. Each in a file of this folder, which is imported whole."""

from hpctrip.base.component import import_all
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.view import SiteView

__all__ = ["POLICIES", "Decision", "Policy", "SiteView"]

import_all(__name__)
