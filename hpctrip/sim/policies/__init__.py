"""Policies: which sites, and how many. Every module of this folder is imported, so a new file is a new policy."""

import importlib
import pkgutil

from hpctrip.sim.policies.base import POLICIES, Decision, Policy, SiteView

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["POLICIES", "Decision", "Policy", "SiteView"]
