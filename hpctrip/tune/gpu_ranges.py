"""GPU settings with many values (power cap, clock): the best value is searched for instead of trying all of them."""

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
"""Number of equidistant values that are always measured, for the curve; the search goes on around the best of them."""
_WIDTH = 0.05
"""Width of the interval at which the search ends, as a fraction of the whole range."""


@dataclass(frozen=True)
class GpuRange:
    """The values that one setting of one GPU may have."""

    key: str
    """Dotted input key of the setting."""
    values: np.ndarray
    """Values that the GPU accepts, [num_values], rising, in the unit of the key."""

    def nearest(self, target: float) -> float | int:
        """The accepted value nearest to `target`, of the type that the input key takes."""
        return self.values[np.abs(self.values - target).argmin()].item()

    def search(self, keys: Keys, costs: Sequence[Cost], run_trial: Callable[[Keys], Trial]) -> list[Trial]:
        """Measure `keys` with several values of this setting, and return all trials.

        The values are those of an equidistant grid and then, for each cost, those of a golden-section search around the
        best grid value. Raises HpctripError if a trial fails.
        """
        trials: dict[float, Trial] = {}

        def at(target: float) -> Trial:
            value = self.nearest(target)
            if value not in trials:
                trials[value] = run_trial({**keys, self.key: value})
                if trials[value].failure:
                    raise HpctripError(trials[value].failure)
            return trials[value]

        low, high = float(self.values[0]), float(self.values[-1])
        grid = np.linspace(low, high, _GRID)
        for cost in costs:
            best = int(np.argmin([cost(at(value)) for value in grid]))
            bracket = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
            golden_section(at, cost, *map(float, bracket), width=_WIDTH * (high - low))
        return list(trials.values())


def gpu_ranges(uuid: str) -> Iterator[Callable[[], GpuRange]]:
    """Yield one function per setting of a GPU, power cap and clock, that returns its range. It raises Unavailable where
    the GPU has no such setting."""
    yield lambda: _cap_range(Gpu.of(uuid))
    yield lambda: _clock_range(Gpu.of(uuid))


def _cap_range(gpu: Gpu) -> GpuRange:
    low_mw, high_mw = gpu.cap_range_mw
    watts = np.arange(-(-low_mw // 1000), high_mw // 1000 + 1, dtype=float)
    if not len(watts):
        raise Unavailable(f"{gpu.uuid}: it accepts only one power cap")
    return GpuRange(CAP, watts)


def _clock_range(gpu: Gpu) -> GpuRange:
    clocks = gpu.clocks_mhz
    if not clocks:
        raise Unavailable(f"{gpu.uuid}: it lists no clocks")
    return GpuRange(CLOCK, np.array(clocks))
