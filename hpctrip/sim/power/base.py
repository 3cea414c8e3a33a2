"""Base of power models, components that build a `PowerSupply`, which answers at any time. Shapes: N sites."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.series import asked_s, next_step_s
from hpctrip.base.validate import columns, instance, numbers, positive
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.sim.calendar import Calendar

POWER_MODELS = Registry("power model", default="uniform")
LOOKED_AT_S = 7 * 86_400.0
"""The time in which a supply is looked at in advance."""
_logger = logging.getLogger(__name__)


class PowerSupply:
    """Base of all supplies: power of N sites as a function of simulated time, with the contract of base/series.py."""

    step_s: float = np.inf
    """Power is constant within each step, which begins at a multiple of `step_s`; inf: it never changes."""
    ends_s: float = np.inf
    """Simulated time from which on it has no data; inf: never."""
    synthetic: bool = True
    """Whether the numbers were made up; results say so wherever they show."""
    calendar: Calendar | None = None
    """Dates of the supply, which then has `on`; None: it has none."""

    def on(self, calendar: Calendar) -> PowerSupply:
        """The same supply cut to a calendar within its own, from whose start simulated time counts."""
        raise NotImplementedError

    def at(self, clock_s: float) -> np.ndarray:
        """Power fraction P_i(t) in [0, 1] of every site, [N] float64."""
        raise NotImplementedError

    def next_change_s(self, clock_s: float) -> float:
        """The end of the present step."""
        return next_step_s(clock_s, self.step_s)

    def least(self) -> np.ndarray:
        """The least power of each site at any time that is looked at, relative to that at P = 1, [N]; above 1 where P
        stays 1."""
        times_s = asked_s(0.0, min(self.ends_s, LOOKED_AT_S), self.next_change_s)
        return np.min([self.at(at_s) for at_s in times_s], axis=0)

    def describe(self) -> dict[str, np.ndarray]:
        """Per-site facts worth recording, e.g. which trace a site follows: {name: numbers or texts [N]}.
        May be empty."""
        return {}

    def warnings(self) -> list[str]:
        """One line for each value that is probably a mistake."""
        return []

    def unused(self) -> list[str]:
        """The columns of the user's file that no site follows."""
        return []


class PowerModel(Component):
    """Base of all power models."""

    def supply(self, num_sites: int, seed: int) -> PowerSupply:
        """The supply of `num_sites` sites. Drawn from named streams: the same seed gives the same power."""
        raise NotImplementedError

    def supply_at(self, sites: Mapping[str, np.ndarray], full_power_w: np.ndarray, seed: int) -> PowerSupply:
        """The supply of sites with these columns (`SitePlacement.columns`), for which a power fraction of 1 means
        `full_power_w` [N]. By default neither matters."""
        if "power_trace" in sites:
            _logger.warning(
                "%s follows no trace: the sites' column power_trace is not used", config_key("power", self)
            )
        return self.supply(len(full_power_w), seed)

    def checked_supply(
        self, sites: Mapping[str, np.ndarray], full_power_w: np.ndarray, seed: int
    ) -> PowerSupply:
        """`supply_at`. InputError where it is none; its fractions are checked where they are asked for (`World`)."""
        place = config_key("power", self)
        supply = instance(self.supply_at(sites, full_power_w, seed), PowerSupply, place, "its supply")
        positive(supply.step_s, place, "step_s")
        instance(supply.synthetic, bool, place, "synthetic")
        if supply.calendar is not None:
            instance(supply.calendar, Calendar, place, "its calendar")
        columns(supply.describe(), len(full_power_w), place, "its description")
        _check_steps(supply, len(full_power_w), place)
        return supply


def _check_steps(supply: PowerSupply, num_sites: int, place: str) -> None:
    """InputError where the power changes within the first step: what is supplied then is remembered until its end."""
    until_s = min(supply.next_change_s(0.0), supply.ends_s, LOOKED_AT_S)
    times_s = [share * until_s for share in (0.0, 0.3, 0.6, 0.9)]
    power = [
        numbers(supply.at(at_s), (num_sites,), 0.0, 1.0, place, f"the power fractions at {at_s:g} s")
        for at_s in times_s
    ]
    for at_s, fractions in zip(times_s, power, strict=True):
        if not np.array_equal(fractions, power[0]):
            problem = f"gives other power at {at_s:g} s than at 0 s, although its step_s = {supply.step_s:g}"
            raise InputError(place, problem, "set step_s of the supply to the length of its steps")


class SteadySupply(PowerSupply):
    """A supply that never changes: one fraction per site."""

    def __init__(self, fractions: np.ndarray):
        self._fractions = np.asarray(fractions, dtype=np.float64)

    def at(self, clock_s: float) -> np.ndarray:
        """The same [N] fractions at every time."""
        return self._fractions
