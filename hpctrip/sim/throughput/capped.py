"""All GPUs under a power cap: measured curves of throughput against cap, as fractions of the largest."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.text import unknown_name
from hpctrip.sim.throughput.base import THROUGHPUT_MODELS, Throughput

MEASURED_CURVES: dict[str, list[list[float]]] = {
    gpu: [[cap_w / caps_s[-1][0], caps_s[-1][1] / epoch_s] for cap_w, epoch_s in caps_s]
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
"""{gpu: [[power cap / largest cap, throughput / throughput at the largest cap]]}, from (cap_w, epoch_s) pairs.

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
    GPUs are taken to draw their cap; the kind `curve` knows what was drawn under it.
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
        power, throughput = np.array([(0, 0), *self._points], dtype=np.float64).T
        return np.interp(power_fraction, power, throughput)

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """All of them from the smallest cap on, proportionally fewer below."""
        return self.num_gpus * np.minimum(
            np.asarray(power_fraction, dtype=np.float64) / self._points[0][0], 1
        )

    @property
    def _points(self) -> list[Point]:
        return self.curve or MEASURED_CURVES[self.gpu]
