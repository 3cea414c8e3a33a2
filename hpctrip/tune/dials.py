"""Settings of a GPU that take many values, its power cap and its clock: the best one is searched for, not all tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.errors import HpctripError
from hpctrip.device.counters import Unavailable
from hpctrip.device.nvml import Gpu
from hpctrip.tune.search import Cost, golden_section
from hpctrip.tune.trial import Keys, Trial

CAP, CLOCK = "knobs.power_cap_w", "knobs.clock_mhz"
_GRID = 4
"""Values at equal distances that are measured in any case, for the curve; around the best of them it is searched on."""
_WIDTH = 0.05
"""Of the range: so near the best value is found."""


@dataclass(frozen=True)
class Dial:
    """One such setting, on one GPU."""

    key: str
    """Of the input."""
    values: np.ndarray
    """Those that the GPU takes, rising."""

    def nearest(self, wish: float) -> float | int:
        """The value that comes nearest, as the input takes it."""
        return self.values[np.abs(self.values - wish).argmin()].item()

    def turned(self, keys: Keys, costs: Sequence[Cost], tried: Callable[[Keys], Trial]) -> list[Trial]:
        """One setting under several values: some at equal distances, then by golden section around the best of them by
        each of the costs. Raises HpctripError where a value is refused."""
        found: dict[float, Trial] = {}

        def at(wish: float) -> Trial:
            value = self.nearest(wish)
            if value not in found:
                found[value] = tried({**keys, self.key: value})
                if found[value].failure:
                    raise HpctripError(found[value].failure)
            return found[value]

        low, high = float(self.values[0]), float(self.values[-1])
        grid = np.linspace(low, high, _GRID)
        for cost in costs:
            best = int(np.argmin([cost(at(value)) for value in grid]))
            inside = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
            golden_section(at, cost, *map(float, inside), width=_WIDTH * (high - low))
        return list(found.values())


def dials(uuid: str) -> Iterator[Callable[[], Dial]]:
    """Those of a GPU. Each raises Unavailable where the GPU has no such setting."""
    yield lambda: _caps(Gpu.of(uuid))
    yield lambda: _clocks(Gpu.of(uuid))


def _caps(gpu: Gpu) -> Dial:
    low_mw, high_mw = gpu.cap_range_mw
    watts = np.arange(-(-low_mw // 1000), high_mw // 1000 + 1, dtype=float)
    if not len(watts):
        raise Unavailable(f"{gpu.uuid}: it takes one power cap alone")
    return Dial(CAP, watts)


def _clocks(gpu: Gpu) -> Dial:
    clocks = gpu.clocks_mhz
    if not clocks:
        raise Unavailable(f"{gpu.uuid}: it names no clocks")
    return Dial(CLOCK, np.array(clocks))
