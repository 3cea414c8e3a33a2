"""Hardware whose GPUs run at one of several operating points: locked clocks, or power caps.

`Clocks` takes the points from the fitted model of a GPU (gpu_power.py), `Curve` from a measured table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.resources import as_file, files
from typing import Annotated, Literal, Self, get_args

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.units import Watts
from hpctrip.config.inputs import Tables
from hpctrip.config.sources import Reads
from hpctrip.sim.hardware.base import THROUGHPUT_MODELS, Throughput
from hpctrip.sim.hardware.gpu_power import GPUS

_SLACK = 1e-9
"""Relative tolerance, so that rounding does not take away a GPU for which the power is exactly enough."""


BuiltIn = Literal["A100", "A40", "A40-caps", "P100-caps", "RTX6000-caps", "V100-caps"]
Points = tuple[np.ndarray, np.ndarray]
"""Operating points of one GPU: its watts, and its work per second in any unit, [C] each."""


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

    def fraction(self, power_fraction: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Throughput of the GPUs that run."""
        return self._running(power_fraction, size)[2]

    def busy_w(self, power_fraction: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Watts of the GPUs that run; the rest of the power is not used."""
        return self._running(power_fraction, size)[1]

    def gpus_on(self, power_fraction: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Number of GPUs that run."""
        return self._running(power_fraction, size)[0]

    def _running(self, power_fraction: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        """Number of GPUs that run with this power, their watts at the site's meter, and their throughput relative to
        all GPUs at the fastest point: [3, ...]."""
        watts, rate = self._allowed
        drawn_w, relative = watts + self.host_w, rate / rate.max()
        if self.choice == "least-energy":
            drawn_w, relative = (v[[np.argmin(drawn_w / rate)]] for v in (drawn_w, relative))
        power = np.asarray(power_fraction, dtype=np.float64) * self.site_w() * size
        most_w, num_gpus = (
            np.array(v)[..., None] for v in (power * (1 + _SLACK), np.rint(self.num_gpus * size))
        )
        number = np.minimum(np.floor(most_w / (drawn_w * self.pue)), num_gpus)
        number = number - (number * drawn_w * self.pue > most_w)  # the quotient may be rounded up
        site_w, throughput = number * drawn_w * self.pue, number * relative / num_gpus
        best = np.lexsort((site_w, -throughput), axis=-1)[..., :1]
        return np.stack([np.take_along_axis(v, best, -1)[..., 0] for v in (number, site_w, throughput)])


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

    def named_gpus(self) -> Mapping[str, Tables]:
        """The models, with their own idle power where none is set."""
        idle_w = None if self.idle_w == self.gpu.idle_w else self.idle_w
        return {gpu: {"gpu": {"kind": gpu}, "idle_w": idle_w} for gpu in GPUS} | {self.gpu.kind: {}}

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
    gpu: BuiltIn | None = None
    """A built-in table, at locked clocks or under power caps. Absent: that of `path`, or else A100."""
    path: Annotated[PathName | None, Reads()] = None
    """Your own table, a CSV file."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.gpu is not None and self.path is not None:
            raise ValueError("gpu and path exclude each other: a table of the package, or your own")
        return self

    def named_gpus(self) -> Mapping[str, Tables]:
        """The built-in tables."""
        return {gpu: {"gpu": gpu, "path": None} for gpu in get_args(BuiltIn)}

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
