"""The contract of a power model: a component that builds a supply, and the supply that answers at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, instance, positive
from hpctrip.base.errors import InputError


class PowerSupply(Protocol):
    """Power of N sites as a function of simulated time: constant within each step of `step_s` seconds.

    `step_s` is `inf` for a supply that never changes. Steps start at multiples of `step_s`.
    `synthetic` says whether the numbers were made up; it shows wherever results show.
    """

    step_s: float
    synthetic: bool

    def fraction(self, clock_s: float) -> np.ndarray:
        """Power fraction P_i(t) in [0, 1] of every site, [N] float64."""
        ...

    def describe(self) -> dict[str, np.ndarray]:
        """Per-site facts worth recording, e.g. which trace a site follows: {name: numbers or texts [N]}.
        May be empty."""
        ...


class PowerModel(Component):
    """Base of all power models (SPEC: power sources; paper Sec. 5.1)."""

    def supply(self, num_sites: int, seed: int) -> PowerSupply:
        """The supply of `num_sites` sites. Drawn from named streams: the same seed gives the same power."""
        raise NotImplementedError

    def checked_supply(self, num_sites: int, seed: int) -> PowerSupply:
        """The supply, or InputError where it is none. Its fractions are checked where they are asked for (`World`)."""
        found, place = self.supply(num_sites, seed), config_key("power", self)
        lacks = [name for name in ("step_s", "synthetic", "fraction", "describe") if not hasattr(found, name)]
        if lacks:
            problem = f"gave a {type(found).__name__} without {' and '.join(lacks)} as its supply"
            raise InputError(place, problem, "see PowerSupply")
        positive(found.step_s, place, "step_s")
        instance(found.synthetic, bool, place, "synthetic")
        for name, values in instance(found.describe(), dict, place, "its description").items():
            array = np.asarray(values)
            if not str(name).isidentifier() or array.shape != (num_sites,) or array.dtype.kind not in "biufU":
                sort = f"{array.dtype} {list(array.shape)}"
                raise InputError(
                    place,
                    f"describes {name!r} as {sort}",
                    f"it must be [{num_sites}] numbers or texts by name",
                )
        return found


class SteadySupply:
    """A supply that never changes: one fraction per site."""

    step_s = float("inf")
    synthetic = True

    def __init__(self, fractions: np.ndarray):
        self._fractions = np.asarray(fractions, dtype=np.float64)

    def fraction(self, clock_s: float) -> np.ndarray:
        """The same [N] fractions at every time."""
        return self._fractions

    def describe(self) -> dict[str, np.ndarray]:
        """Nothing beyond the fractions themselves."""
        return {}


POWER_MODELS = Registry("power model", default="uniform")

_MOST_STEPS = 288
"""A day of five-minute steps."""


def mean_fraction(
    fraction: Callable[[float], np.ndarray], step_s: float, start_s: float, end_s: float
) -> np.ndarray:
    """The mean between two times, [N], of `fraction(t)`, which holds within each step; that at `start_s` where they are
    one. Of more than _MOST_STEPS steps, evenly spaced samples."""
    first, last = start_s // step_s, end_s // step_s
    if first == last:  # a supply that never changes has one step
        return fraction(start_s)
    edges = np.arange(first + 1, last + 1) * step_s
    if len(edges) >= _MOST_STEPS:
        edges = np.linspace(start_s, end_s, _MOST_STEPS)[1:-1]
    edges = np.concatenate([[start_s], edges, [end_s]])
    spans_s = np.diff(edges)
    found = np.stack([fraction(middle) for middle in (edges[:-1] + edges[1:]) / 2])
    return spans_s @ found / spans_s.sum()
