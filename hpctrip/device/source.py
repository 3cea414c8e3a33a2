"""The contract of an energy counter, and the counter that a machine without one is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

MICRO = 1_000_000
"""Microjoules in a joule. Energy is counted in whole microjoules, so that sums over phases and nodes are exact."""


class Unavailable(Exception):
    """A counter that cannot be read, or a setting that cannot be made: why, in a phrase."""


class Source(Protocol):
    """One device, or several, whose energy is counted."""

    name: str
    """As it is told, e.g. "1 GPU (NVML)"."""

    def read_uj(self) -> int:
        """Microjoules since some moment before the run; never falls. Raises Unavailable."""
        ...


@dataclass
class Assumed:
    """A constant draw, for a machine that counts nothing. Its joules are time in another unit, and are called so."""

    watts: float
    clock: Callable[[], float] = time.perf_counter
    """Seconds since some moment."""

    @property
    def name(self) -> str:
        """With the figure."""
        return f"assumed {self.watts:g} W"

    def read_uj(self) -> int:
        """Watts times seconds."""
        return round(self.watts * self.clock() * MICRO)
