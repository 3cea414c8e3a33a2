"""Hardware whose GPUs run at one of several operating points: locked clocks, or power caps.

`Clocks` takes the points from the fitted model of a GPU (gpu_power.py), `Curve` from a measured table.
"""

from __future__ import annotations

from functools import cached_property
from importlib.resources import as_file, files
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.units import Watts
from hpctrip.config.sources import Reads
from hpctrip.sim.hardware.base import THROUGHPUT_MODELS, Throughput
from hpctrip.sim.hardware.gpu_power import GPUS

_MAX_LEVELS = 10_000_000
"""The largest product of the number of GPUs and that of operating points: all pairs are sorted in memory."""
_SLACK = 1e-9
"""Relative tolerance, so that rounding does not take away a level for which the power is exactly enough."""


Points = tuple[np.ndarray, np.ndarray]
"""Operating points of one GPU: its watts, and its work per second in any unit, [C] each."""


class Levels(NamedTuple):
    """The useful operating states of a site by rising power, [L] each: every level has more throughput than the one
    before."""

    site_w: np.ndarray
    """Watts at the site's meter while it computes."""
    throughput: np.ndarray
    """Relative to all GPUs at their fastest point."""
    num_gpus: np.ndarray


class OperatingPoints(Throughput):
    """Base of the hardware with several operating points per GPU.

    Of all pairs (number of GPUs, point), the same point for all GPUs, a site runs the one with the most throughput
    that its power P * site_power_w is enough for; with choice = "least-energy" as many GPUs as it is enough for at the
    point that needs the least energy for a sample, the server's share included.
    """

    whole_gpus = True
    gpu_power_w: Watts | None = Field(None, gt=0)
    """Power limit of a GPU: points that draw more are ignored. Absent: none."""
    site_power_w: Watts | None = Field(None, gt=0)
    """Power of the site at P = 1; absent: the power of all its GPUs at the fastest point."""
    choice: Literal["most-throughput", "least-energy"] = "most-throughput"
    """Operating point that a site chooses."""

    def points(self) -> Points:
        """Operating points of one GPU: at least one, all positive. Raises InputError where their file is unusable."""
        raise NotImplementedError

    @cached_property
    def _allowed(self) -> Points:
        """The points within the GPU's power limit, by rising power."""
        watts, rate = self.points()
        allowed = np.flatnonzero(watts <= (self.gpu_power_w or np.inf))
        if not len(allowed):
            raise InputError(
                f"throughput.gpu_power_w = {self.gpu_power_w:g}",
                f"the GPU draws at least {watts.min():.4g} W",
                "raise it, or leave it out",
            )
        order = allowed[np.lexsort((-rate[allowed], watts[allowed]))]
        return watts[order], rate[order]

    def full_power_w(self) -> float:
        """Power of a site whose GPUs all run at the fastest point."""
        watts, rate = self._allowed
        return self.num_gpus * (float(watts[rate.argmax()]) + self.host_w) * self.pue

    @cached_property
    def levels(self) -> Levels:
        """All levels, from no GPU to all GPUs at the fastest point."""
        watts, rate = self._allowed
        fastest = rate.max()
        drawn_w = watts + self.host_w
        if self.choice == "least-energy":
            best = int(np.argmin(drawn_w / rate))
            drawn_w, rate = drawn_w[best : best + 1], rate[best : best + 1]
        if self.num_gpus * len(rate) > _MAX_LEVELS:
            raise InputError(
                f"throughput.num_gpus = {self.num_gpus:,}",
                f"times {len(rate):,} operating points is more than {_MAX_LEVELS:,}",
                "describe a site by fewer, larger GPUs, or thin out the curve",
            )
        number = np.arange(1, self.num_gpus + 1)
        site_w = (number[:, None] * drawn_w * self.pue).ravel()
        throughput = (number[:, None] * (rate / fastest) / self.num_gpus).ravel()
        number = np.repeat(number, len(rate))
        order = np.lexsort((-throughput, site_w))
        site_w, throughput, number = site_w[order], throughput[order], number[order]
        better = throughput > np.maximum.accumulate(np.concatenate([[0.0], throughput[:-1]]))
        return Levels(*(np.append(0.0, values[better]) for values in (site_w, throughput, number)))

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """Throughput of the level."""
        return self.levels.throughput[self._level(power_fraction)]

    def busy_w(self, power_fraction: np.ndarray) -> np.ndarray:
        """Watts of the level; the rest of the power is not used."""
        return self.levels.site_w[self._level(power_fraction)]

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """GPUs of the level."""
        return self.levels.num_gpus[self._level(power_fraction)]

    def _level(self, power_fraction: np.ndarray) -> np.ndarray:
        site_w = np.asarray(power_fraction, dtype=np.float64) * self.site_w()
        return np.searchsorted(self.levels.site_w, site_w * (1 + _SLACK), side="right") - 1


@THROUGHPUT_MODELS.add
class Clocks(OperatingPoints):
    """GPUs at locked clocks: power P0 + c x V(x)^2, time a + (1 - a) / x at the relative clock x (gpu_power.py)."""

    kind = "clocks"
    gpu: GPUS.field() = Field(default_factory=dict, validate_default=True)
    """The model: "a100" or "a40", whose numbers can be overridden."""
    idle_w: Watts | None = Field(None, ge=0)
    """Power of an idle GPU that is on; absent: the model's."""

    def resolve(self) -> Self:
        """The same with the model's idle power where none is set."""
        return super().resolve().with_defaults(idle_w=self.gpu.idle_w)

    def points(self) -> Points:
        """One point for each clock of the model."""
        x = self.gpu.frequencies
        return self.gpu.full_power_w(x), 1 / self.gpu.slowdown(x)


_LARGEST = 1e12
"""Largest number of watts, and of samples per second, in a table."""


@THROUGHPUT_MODELS.add
class Curve(OperatingPoints):
    """GPUs at the operating points of a table, one per row: `watts`, the mean draw, and `samples_per_second`, in any
    unit of work; other columns (`clock_mhz`, `cap_watts`) are informative.

    The tables of the package are means over the measured workloads (traces/SOURCES.md of the source tree).
    """

    kind = "curve"
    gpu: Literal["A100", "A40", "A40-caps", "P100-caps", "RTX6000-caps", "V100-caps"] | None = None
    """A built-in table, at locked clocks or under power caps. Absent: that of `path`, or else A100."""
    path: Annotated[PathName | None, Reads()] = None
    """Your own table, a CSV file."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.gpu is not None and self.path is not None:
            raise ValueError("gpu and path exclude each other: a table of the package, or your own")
        return self

    def points(self) -> Points:
        """The rows of the table. InputError names the file and the line that is wrong."""
        if self.path is not None:
            return read_curve(self.path, f"throughput.path = {self.path!r}")
        gpu = self.gpu or "A100"
        with as_file(files("hpctrip.sim.hardware").joinpath("curves", f"{gpu}.csv")) as path:
            return read_curve(str(path), gpu)


def read_curve(path: str, place: str) -> Points:
    """Read a table of operating points. InputError names the line that is wrong."""
    table = read_table(path, place, may_comment=True)
    table.require("watts", "samples_per_second")
    if not len(table.lines):
        raise InputError(table.place, "holds 0 rows", "give one operating point or more")
    watts, rate = table.numbers("watts"), table.numbers("samples_per_second")
    for name, values in (("watts", watts), ("samples_per_second", rate)):
        table.refuse(name, (values <= 0) | (values > _LARGEST), f"is not above 0 and at most {_LARGEST:g}")
    return watts, rate
