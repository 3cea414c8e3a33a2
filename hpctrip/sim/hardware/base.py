"""The hardware of a site: throughput and watts drawn as functions of its power fraction.

`Throughput` is the contract, and `Hardware` asks it for N sites; `Linear` is the paper's rule, `Gpus` its Eq. 6,
`Capped` a measured curve of throughput against power cap. Hardware with several operating points of its GPUs is in
operating_points.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError, faults_at
from hpctrip.base.text import unknown_name
from hpctrip.base.units import Watts
from hpctrip.base.validate import numbers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.inputs import Tables, resolved, validate
from hpctrip.sim.hardware.gpu_power import OWN_GPU
from hpctrip.sim.sites import Sites, known

THROUGHPUT_MODELS = Registry("throughput model", default="linear")
_MAX_W = 1e30
"""Far more than any hardware draws; sums of it stay finite."""


class Throughput(Component):
    """Base of all hardware models. A model describes one site and is never told which; `Hardware` applies it to all. A
    kind defines `fraction`, a non-decreasing map of [0, 1] into [0, 1]; one that uses less than all of the power
    overrides `gpus_on` and `busy_w`, too.

    Power is metered where it enters the site: all of it counts `pue` times.
    """

    whole_gpus: ClassVar[bool] = False
    """Whether GPUs are whole, so that the fraction changes with their number: where sites have numbers of their own,
    `fraction`, `gpus_on` and `busy_w` then also get `size`, the sites' GPUs and power relative to the usual ones, [n].
    Otherwise the watts are multiplied by it."""

    num_gpus: int = Field(100, gt=0, le=10**9)
    """GPUs of a site, N."""
    gpu_power_w: Watts = Field(400.0, gt=0)
    """Power of one busy GPU with its share of the server (400 W: the rating of an A100 SXM)."""
    host_w: Watts = Field(0.0, ge=0)
    """Additional server power per GPU that is on, busy or idle (0: included in gpu_power_w)."""
    idle_w: Watts = Field(55.0, ge=0)
    """Power of an idle GPU that is on (55 W: about that of an A100 SXM)."""
    pue: float = Field(1.10, ge=1)
    """Power usage effectiveness: power of the site divided by power of its computers (1.10: Google's fleet)."""

    def full_power_w(self) -> float:
        """Power of a site whose GPUs all run at full speed."""
        return self.num_gpus * (self.gpu_power_w + self.host_w) * self.pue

    def site_w(self) -> float:
        """Power of a site at P = 1: `site_power_w` of the kinds that have it, else `full_power_w`."""
        return getattr(self, "site_power_w", None) or self.full_power_w()

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """Throughput relative to that of a fully powered site, float64 in the shape of `power_fraction`.

        May be 0: such a site makes no progress until it has more power.
        """
        raise NotImplementedError

    def busy_w(self, power_fraction: np.ndarray) -> np.ndarray:
        """Watts that a site with this power draws while it computes, in the shape of `power_fraction`: by default all
        of its power."""
        return np.asarray(power_fraction, dtype=np.float64) * self.full_power_w()

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """Number of GPUs that are on, 0 to N, not always whole: by default in proportion to the power."""
        return np.asarray(power_fraction, dtype=np.float64) * self.num_gpus

    def waiting_w(self, power_fraction: np.ndarray, *size: np.ndarray) -> np.ndarray:
        """Watts that the site draws while its GPUs are on and wait: never more than while they compute."""
        one_w = self.resolve().idle_w + self.host_w
        idle_w = self.gpus_on(power_fraction, *size) * one_w * self.pue
        return np.minimum(idle_w, self.busy_w(power_fraction, *size))

    def named_gpus(self) -> Mapping[str, Tables]:
        """{name of a GPU: the keys by which this hardware has it instead}; by default it knows none by its name."""
        return {}

    def with_gpu(self, name: str) -> Self:
        """This hardware with the GPU of a name, in capitals or not. InputError where there is none of this name."""
        gpus = self.named_gpus()
        names = {each.casefold(): each for each in gpus}
        if (known_as := names.get(name.casefold())) is None:
            known_here = unknown_name(name, gpus) if gpus else 'use "capped", "clocks" or "curve"'
            problem = f"throughput.kind = {self.kind!r} knows no such GPU by its name; {known_here}"
            raise InputError(f"gpu = {name!r}", problem, f"one of your own: {OWN_GPU}")
        tables = {key: value for key, value in resolved(self).items() if key != "kind"}
        return validate(tables | gpus[known_as], type(self)).resolve()


@dataclass(frozen=True)
class Hardware:
    """The hardware of N sites, which may have unlike GPUs. Values of a component are checked here."""

    model: Throughput
    """One site of the usual number and kind of GPUs."""
    size: np.ndarray
    """GPUs of each site relative to the usual number, [N]."""
    speed: np.ndarray | None = None
    """Training speed of each site at full power, relative to that of the usual number of GPUs, [N]; None: its size."""
    contract_w: np.ndarray | None = None
    """Power of each site at P = 1, [N]; None: `model.site_w` of each GPU."""
    others: Sequence[tuple[Throughput, np.ndarray]] = ()
    """Models of other kinds of GPUs, each with the sites that have them, [N] bool."""

    @classmethod
    def of(
        cls,
        model: Throughput,
        columns: Mapping[str, np.ndarray],
        num_sites: int,
        place: str,
        seconds_per_sample: float,
    ) -> Hardware:
        """The hardware of sites with these columns (`SitePlacement.columns`); a sample takes `seconds_per_sample` at a
        site of the usual number of GPUs. InputError at `place`, the sites' table, for an invalid number of GPUs, and
        for a GPU that is not known."""
        num_gpus = known(columns, "num_gpus", np.full(num_sites, float(model.num_gpus)))
        if model.whole_gpus and len(parts := num_gpus[num_gpus % 1 > 0]):
            problem = (
                f"has a site of {parts[0]:g} GPUs, and throughput.kind = {model.kind!r} counts whole ones"
            )
            raise InputError(place, problem, "give whole numbers in the column gpus")
        what = "the relative numbers of GPUs"
        size = numbers(num_gpus / model.num_gpus, (num_sites,), 1e-9, 1e9, place, what)
        speed = contract_w = None
        if "seconds_per_sample" in columns:
            speed = seconds_per_sample / known(columns, "seconds_per_sample", seconds_per_sample / size)
        gpus = columns.get("gpu", np.full(num_sites, ""))
        with faults_at(place):
            others = [(model.with_gpu(name), gpus == name) for name in np.unique(gpus[gpus != ""]).tolist()]
        hardware = cls(model, size, speed, None, others)
        if "contract_w" in columns:
            contract_w = known(columns, "contract_w", hardware.site_w)
        return replace(hardware, contract_w=contract_w)

    @property
    def site_w(self) -> np.ndarray:
        """Power of each site at P = 1, [N]."""
        return self._gpus_w if self.contract_w is None else self.contract_w

    @property
    def full_power_w(self) -> np.ndarray:
        """Power of each site whose GPUs all run at full speed, [N]."""
        return self._each("full_power_w") * self.size

    @property
    def mean_full_power_w(self) -> float:
        """Power of a site whose GPUs all run at full speed, the mean of the sites."""
        if self.others:
            return float(self.full_power_w.mean())
        return self.model.full_power_w() * float(self.size.mean())

    @property
    def full_speed(self) -> np.ndarray:
        """Training speed of each site at full power, relative to that of the usual number of GPUs, [N]."""
        return self.size if self.speed is None else self.speed

    def work_s(self, num_visits: np.ndarray, seconds_per_sample: float) -> np.ndarray:
        """c_i: seconds that the sites need at full power to train on `num_visits` samples [N]; a sample takes
        `seconds_per_sample` at a site of throughput.num_gpus GPUs."""
        return seconds_per_sample * num_visits / self.full_speed

    def throughput(self, power_fraction: np.ndarray, sites: Sites = slice(None)) -> np.ndarray:
        """Throughput fraction of `sites` with this power [n], relative to full power, [n]; 0 without power. InputError
        where it is no fraction."""
        fraction = self._asked("fraction", power_fraction, sites, 1.0, "the throughput fractions")
        return np.where(power_fraction > 0, fraction, 0.0)

    def draw_w(self, power_fraction: np.ndarray, sites: Sites = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """(busy, waiting) watts of `sites` with this power [n], [n] each. InputError where they are no watts."""
        busy_w = self._asked("busy_w", power_fraction, sites, _MAX_W, "the watts of busy sites")
        waiting_w = self._asked("waiting_w", power_fraction, sites, _MAX_W, "the watts of waiting sites")
        if self._own(sites):
            return busy_w, waiting_w
        return busy_w * self.size[sites], waiting_w * self.size[sites]

    def _asked(self, name: str, power: np.ndarray, sites: Sites, most: float, what: str) -> np.ndarray:
        """The function `name` of the models of `sites` with this power [n]: numbers from 0 to `most`, [n]."""
        if self.contract_w is not None:  # of which the GPUs may need only a part
            needed_w = np.minimum(power * self.contract_w[sites], self.full_power_w[sites])
            power = needed_w / self._gpus_w[sites]
        place, own = config_key("throughput", self.model), self._own(sites)
        values = numbers(getattr(self.model, name)(power, *own), power.shape, 0.0, most, place, what)
        for model, is_of in self.others:
            if (these := is_of[sites]).any():
                here = getattr(model, name)(power[these], *(size[these] for size in own))
                values = values.copy()
                values[these] = numbers(here, here.shape, 0.0, most, place, what)
        return values

    def _each(self, name: str) -> np.ndarray:
        """What the function `name` of the model of each site says, [N]."""
        values = np.full(len(self.size), getattr(self.model, name)())
        for model, is_of in self.others:
            values[is_of] = getattr(model, name)()
        return values

    @property
    def _gpus_w(self) -> np.ndarray:
        """Power of each site at P = 1 without a contract, [N]."""
        return self._each("site_w") * self.size

    def _own(self, sites: Sites) -> tuple[np.ndarray, ...]:
        """The sizes of `sites` [n] where their numbers of GPUs count in the component's functions, else nothing."""
        size = self.size[sites]
        return (size,) if self.model.whole_gpus and (size != 1).any() else ()


@THROUGHPUT_MODELS.add
class Linear(Throughput):
    """Throughput is proportional to power (paper Sec. 5.1), and all power is drawn."""

    kind = "linear"

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """P itself."""
        return np.asarray(power_fraction, dtype=np.float64)


@THROUGHPUT_MODELS.add
class Gpus(Throughput):
    """As many whole GPUs as the power allows, each at full power: n = min(N, floor(power_w / gpu_power_w)) (Eq. 6).

    power_w = P * site_power_w / pue is the power of the GPUs. Below the power of one GPU the throughput is 0.
    """

    kind = "gpus"
    whole_gpus = True
    site_power_w: Watts | None = None
    """Power of the site at P = 1. By default the power of all its GPUs: num_gpus * gpu_power_w * pue."""

    @model_validator(mode="after")
    def _powers_one_gpu(self) -> Self:
        if self.site_power_w is not None and self.site_power_w / self.pue < self.gpu_power_w + self.host_w:
            raise ValueError(
                f"site_power_w = {self.site_power_w:g} at pue = {self.pue:g} does not power one GPU of "
                f"gpu_power_w = {self.gpu_power_w:g}, even at full power"
            )
        return self

    def resolve(self) -> Self:
        """With the site's power."""
        return self.with_defaults(site_power_w=self.full_power_w())

    def fraction(self, power_fraction: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """n / N."""
        return self.gpus_on(power_fraction, size) / np.rint(self.num_gpus * size)

    def gpus_on(self, power_fraction: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """n."""
        one_w = self.gpu_power_w + self.host_w
        powered = np.asarray(power_fraction, dtype=np.float64) * size * (self.site_w() / self.pue / one_w)
        # Rounding leaves exact multiples as 39.99999999999999; 1e-9 of a GPU is far above that, far below a watt.
        return np.minimum(np.rint(self.num_gpus * size), np.floor(powered + 1e-9 * self.num_gpus * size))

    def busy_w(self, power_fraction: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """The watts of n GPUs; the rest of the power is not used."""
        return self.gpus_on(power_fraction, size) * (self.gpu_power_w + self.host_w) * self.pue


_EPOCH_S = {
    "V100": [6781.17, 5064.97, 4148.66, 3852.18, 3700.97, 3584.30, 3514.99],
    "A40": [10606.19, 9639.82, 6326.84, 4705.61, 4123.52, 3909.47, 3864.98, 3857.81, 3847.48],
}
"""{gpu: seconds of one ImageNet epoch under caps of 100, 125, 150, ... W}: ResNet-50, batch 256, as published with Zeus
(You et al., NSDI 2023): github.com/ml-energy/zeus, examples/research_reproducibility/zeus_nsdi23/trace/
summary_power_{v100,a40}.csv."""
MEASURED_CURVES: dict[str, list[list[float]]] = {
    gpu: [
        [(100 + 25 * i) / (75 + 25 * len(epoch_s)), epoch_s[-1] / seconds]
        for i, seconds in enumerate(epoch_s)
    ]
    for gpu, epoch_s in _EPOCH_S.items()
}
"""{gpu: [[power cap / largest cap, throughput / throughput at the largest cap]]}."""

Fraction = Annotated[float, Field(gt=0, le=1)]
Point = Annotated[list[Fraction], Field(min_length=2, max_length=2)]


@THROUGHPUT_MODELS.add
class Capped(Throughput):
    """All GPUs run under a power cap: a measured curve of throughput against cap, linear between its points.

    Below the smallest measured cap P_1 (about the smallest that the driver accepts) some GPUs are switched off and the
    rest run at P_1: throughput is then proportional to power, from (0, 0) to the first point. GPUs are assumed to draw
    their cap; the kind `curve` uses the measured draw.
    """

    kind = "capped"
    gpu: str = "V100"
    """Name of the curve: a measured GPU, "V100" or "A40" (sources: MEASURED_CURVES), or the name of your own."""
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
            raise ValueError("curve must rise: power fractions strictly, throughput fractions not fall")
        return self

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """The curve at P."""
        power, throughput = np.array([(0, 0), *self._points], dtype=np.float64).T
        return np.interp(power_fraction, power, throughput)

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """All GPUs from the smallest cap on, proportionally fewer below."""
        of_smallest_cap = np.asarray(power_fraction, dtype=np.float64) / self._points[0][0]
        return self.num_gpus * np.minimum(of_smallest_cap, 1)

    def named_gpus(self) -> Mapping[str, Tables]:
        """The measured curves, and its own."""
        return {gpu: {"gpu": gpu, "curve": None} for gpu in MEASURED_CURVES} | {self.gpu: {}}

    @property
    def _points(self) -> list[Point]:
        return self.curve or MEASURED_CURVES[self.gpu]
