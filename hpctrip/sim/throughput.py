"""What an available power fraction is worth: throughput models, from power fraction to throughput fraction."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.component import Component, Registry, unknown_name
from hpctrip.base.units import Watts

THROUGHPUT_MODELS = Registry("throughput model", default="linear")


class Throughput(Component):
    """Base of all throughput models: a non-decreasing map of [0, 1] into [0, 1], the same at every site."""

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """Throughput relative to that of a fully powered site, float64 in the shape of `power_fraction`.

        May be 0: such a site makes no progress until it has more power.
        """
        raise NotImplementedError


@THROUGHPUT_MODELS.add
class Linear(Throughput):
    """Throughput is proportional to power (paper Sec. 5.1)."""

    kind = "linear"

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """P itself."""
        return np.asarray(power_fraction, dtype=np.float64)


@THROUGHPUT_MODELS.add
class Gpus(Throughput):
    """Whole GPUs run at full power or not at all: n = min(N, floor(power_w / gpu_power_w)) (Eq. 6).

    power_w = P * site_power_w / pue is what reaches the GPUs. Below the power of one GPU the throughput is 0.
    """

    kind = "gpus"
    num_gpus: int = Field(100, gt=0)
    """GPUs of a site, N."""
    gpu_power_w: Watts = Field(400.0, gt=0)
    """Power of one busy GPU with its share of the server (400 W: the rating of an A100 SXM)."""
    pue: float = Field(1.10, ge=1)
    """Power usage effectiveness: power of the site over power of its computers (1.10: Google's fleet)."""
    site_power_w: Watts | None = None
    """Power of the site at P = 1. By default exactly what all its GPUs need: num_gpus * gpu_power_w * pue."""

    @model_validator(mode="after")
    def _powers_one_gpu(self) -> Self:
        if self.site_power_w is not None and self.site_power_w / self.pue < self.gpu_power_w:
            raise ValueError(
                f"site_power_w = {self.site_power_w:g} at pue = {self.pue:g} does not power one GPU of "
                f"gpu_power_w = {self.gpu_power_w:g}, even at full power"
            )
        return self

    def in_force(self) -> Self:
        """With the site's power."""
        return self.filled_in(site_power_w=self.num_gpus * self.gpu_power_w * self.pue)

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """n / N."""
        full_w = self.in_force().site_power_w
        powered = np.asarray(power_fraction, dtype=np.float64) * (full_w / self.pue / self.gpu_power_w)
        # Rounding leaves exact multiples as 39.99999999999999; 1e-9 of a GPU is far above that, far below a watt.
        return np.minimum(self.num_gpus, np.floor(powered + 1e-9 * self.num_gpus)) / self.num_gpus


MEASURED_CURVES: dict[str, list[tuple[float, float]]] = {
    gpu: [(cap_w / caps_s[-1][0], caps_s[-1][1] / epoch_s) for cap_w, epoch_s in caps_s]
    for gpu, caps_s in {
        "V100": [
            (100, 6781.17),
            (125, 5064.97),
            (150, 4148.66),
            (175, 3852.18),
            (200, 3700.97),
            (225, 3584.30),
            (250, 3514.99),
        ],
        "A40": [
            (100, 10606.19),
            (125, 9639.82),
            (150, 6326.84),
            (175, 4705.61),
            (200, 4123.52),
            (225, 3909.47),
            (250, 3864.98),
            (275, 3857.81),
            (300, 3847.48),
        ],
    }.items()
}
"""{gpu: [(power cap / largest cap, throughput / throughput at the largest cap)]}, from (cap_w, epoch_s) pairs.

Seconds of one ImageNet epoch, ResNet-50, batch 256, as published with Zeus (You et al., NSDI 2023):
github.com/ml-energy/zeus, examples/research_reproducibility/zeus_nsdi23/trace/summary_power_{v100,a40}.csv.
"""

Fraction = Annotated[float, Field(gt=0, le=1)]
Point = Annotated[list[Fraction], Field(min_length=2, max_length=2)]


@THROUGHPUT_MODELS.add
class Capped(Throughput):
    """All GPUs run under a power cap: a measured curve of throughput against cap, linear between its points.

    Below the smallest measured cap P_1 (about the smallest that the driver accepts) GPUs have to be switched off and
    the rest run at P_1: throughput is then proportional to power, a straight line from (0, 0) to the first point.
    """

    kind = "capped"
    gpu: str = "V100"
    """Whose curve: a measured GPU ("V100", "A40"; their sources: MEASURED_CURVES), or the name of your own curve."""
    curve: list[Point] | None = None
    """Your own curve: [[power_fraction, throughput_fraction], ...], rising, ending at [1, 1]. Needs its own `gpu`."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.curve is None:
            if self.gpu not in MEASURED_CURVES:
                raise ValueError(
                    f"gpu = {self.gpu!r} has no measured curve; {unknown_name(self.gpu, MEASURED_CURVES)}; "
                    "give your own as curve = [[power_fraction, throughput_fraction], ...]"
                )
            return self
        if self.gpu in MEASURED_CURVES:
            raise ValueError(
                f"curve is given, but gpu = {self.gpu!r} is a measured one; name your own, e.g. 'mine'"
            )
        power, throughput = np.array(self.curve, dtype=np.float64).reshape(-1, 2).T
        if len(power) == 0 or self.curve[-1] != [1, 1]:
            raise ValueError("curve must end at [1, 1]: full power gives full throughput")
        if (np.diff(power) <= 0).any() or (np.diff(throughput) < 0).any():
            raise ValueError(
                "curve must rise: power fractions strictly, throughput fractions without falling"
            )
        return self

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """The curve at P."""
        power, throughput = np.array([(0, 0), *(self.curve or MEASURED_CURVES[self.gpu])], dtype=np.float64).T
        return np.interp(power_fraction, power, throughput)
