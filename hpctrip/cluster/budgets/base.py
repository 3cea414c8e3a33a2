"""The contract of a budget: a component that builds a limit, which says what may be drawn next."""

from __future__ import annotations

import sys

import numpy as np

from hpctrip.base.series import Signal
from hpctrip.base.validate import instance
from hpctrip.config.component import Component, Registry, config_key

BUDGETS = Registry("budget", default="none")


class Limit:
    """What the cluster may draw. This one lets it draw anything; the intensity of its carbon is not known."""

    renewed = False
    """Whether it changes at every round, so that there is a decision at each."""
    intensity = Signal.constant(0.0)
    """g/kWh of the cluster's power."""

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        """Watts that may be drawn from now until then, when so much has been used before."""
        return np.inf

    def next_change_s(self, clock_s: float) -> float:
        """When it will be another, besides at rounds; inf: never."""
        return np.inf

    def is_spent(self, clock_s: float) -> bool:
        """Whether nothing will be allowed any more that is not allowed now."""
        return True


class Budget(Component):
    """Base of all budgets."""

    def limit(self) -> Limit:
        """The limit. Raises InputError where a file that it needs is not what it should be."""
        return Limit()

    def checked_limit(self) -> Limit:
        """The limit, or InputError where it is none. Its watts are checked where they are asked for (`Decisions`)."""
        place = config_key("budget", self)
        limit = instance(self.limit(), Limit, place, "its limit")
        Signal.checked(limit.intensity, 0.0, sys.float_info.max, place, "the intensity of carbon")
        return limit


@BUDGETS.add
class NoBudget(Budget):
    """No limit. A scheduler may have one of its own (powerflow.eta)."""

    kind = "none"


def accrued(total: float, clock_s: float, period_s: float) -> float:
    """What of a budget may have been used by a time: an even share, all of it from the end of the period on."""
    return total * min(clock_s / period_s, 1.0)
