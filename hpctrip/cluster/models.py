"""Models that jobs train: their speed and power by number of GPUs, number of nodes and frequency.

The catalogue holds built-in fits to ElasticFlow's A100 tables, or the user's own tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.cluster.step_time import Measured, StepTime, fit_step_time
from hpctrip.config.component import Component
from hpctrip.config.sources import Reads, files_at
from hpctrip.sim.hardware.gpu_power import Gpu


class Profile(Protocol):
    """Speed of one type of job, for example a model trained with one batch size."""

    name: str
    most_gpus: int
    """Maximum number of GPUs to which elastic schedulers may scale it; a user may request more."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, computing share of the time), [F] each, on `gpus` GPUs of `nodes` nodes.

        `slowdown` [F]: computing time at each frequency relative to the highest frequency.
        """
        ...


@dataclass(frozen=True)
class FixedBatch:
    """A model trained with a fixed global batch size; its work is counted in steps.

    Measured step times are used where there are any; the fitted form then gives only their dependence on frequency and
    on nodes beyond the fewest. Between two measured numbers of GPUs the ratio of measured to fitted time is
    interpolated.
    """

    name: str
    step_time: StepTime
    batch: int
    most_gpus: int
    gpus_per_node: int
    measured: Mapping[int, float] = field(default_factory=dict)
    """{GPUs: seconds of a step on as few nodes as possible}, by rising number of GPUs."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Steps per second, and the computing share of a step, [F] each; see `Profile.speed`."""
        local = self.batch / gpus
        step_s = self.step_time.seconds(local, gpus, nodes, slowdown)
        computing = self.step_time.compute_s(local, slowdown) / step_s
        return 1 / (step_s * self._correction(gpus)), computing

    def _correction(self, gpus: int) -> float:
        """Ratio of measured to fitted step time at the highest frequency."""
        if not self.measured:
            return 1.0
        counts = np.array(list(self.measured))
        fitted_s = self.step_time.seconds(self.batch / counts, counts, -(-counts // self.gpus_per_node))
        ratios = np.log(np.array(list(self.measured.values())) / fitted_s)
        return float(np.exp(np.interp(np.log(gpus), np.log(counts), ratios)))


class Speeds:
    """Tables of the speed and power of P profiles on a cluster's GPUs.

    The tables assume that a job is packed on as few nodes as possible; `at` takes any number of nodes.
    """

    def __init__(self, profiles: Sequence[Profile], gpu: Gpu, gpus_per_node: int, most_gpus: int):
        """`most_gpus`: the largest number of GPUs in the tables."""
        self.profiles = tuple(profiles)
        self.gpus_per_node = gpus_per_node
        self.frequencies = gpu.frequencies
        """[F] rising fractions of the highest frequency."""
        self._gpu = gpu
        self._slowdown = gpu.slowdown(self.frequencies)
        self._cache: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        shape = (len(self.profiles), most_gpus + 1, len(self.frequencies))
        self.rate, self.power_w = np.zeros(shape), np.zeros(shape)
        """[P, n, F] work per second and watts on n GPUs; 0 on none."""
        for profile, gpus in np.ndindex(shape[0], most_gpus):
            self.rate[profile, gpus + 1], self.power_w[profile, gpus + 1] = self.at(
                profile, gpus + 1, self.fewest_nodes(gpus + 1)
            )
        self.most_gpus = np.array([min(profile.most_gpus, most_gpus) for profile in self.profiles])
        """[P] maximum number of GPUs for elastic schedulers."""

    def fewest_nodes(self, gpus: np.ndarray | int) -> np.ndarray | int:
        """The smallest number of nodes that hold `gpus` GPUs."""
        return -(-gpus // self.gpus_per_node)

    def at(self, profile: int, gpus: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, watts), [F] each, of a profile on `gpus` GPUs of `nodes` nodes; cached."""
        key = (profile, gpus, nodes)
        if key not in self._cache:
            rate, computing = self.profiles[profile].speed(gpus, nodes, self._slowdown)
            self._cache[key] = (rate, gpus * self._gpu.power_w(self.frequencies, computing))
        return self._cache[key]


FITTED = {
    "bert": ((64, 128), StepTime(0.048611, 0.0018322, 0.074752, 0.0036472, 0.065240, 0.0016395, 2.6118)),
    "deepspeech2": ((32, 64), StepTime(0.045900, 0.0089558, 0.016444, 0.0, 0.0029344, 0.0027874, 1.0)),
    "gpt2": ((128, 256), StepTime(0.023725, 0.00088013, 0.033408, 0.0027939, 0.021512, 0.0018788, 1.7100)),
    "inception3": (
        (64, 128),
        StepTime(0.021358, 0.0028978, 0.060211, 0.0017764, 0.040382, 0.0026041, 1.7604),
    ),
    "resnet50": (
        (64, 128, 256),
        StepTime(0.0074090, 0.0021334, 0.033091, 0.0012408, 0.015866, 0.0020417, 1.2076),
    ),
    "vgg16": ((64, 128, 256), StepTime(0.0, 0.0030614, 0.027489, 0.00074834, 0.013040, 0.0022658, 1.0)),
}
"""{model: (measured batch sizes, parameters)}, printed by `hpctrip cluster fit` for the A100 tables of ElasticFlow
(pkusys/ElasticFlow, Apache-2.0) with 8 GPUs per node and 1 to 64 GPUs. Mean errors 1.0-3.1 %, largest error 11 %."""


_BATCH = "global_batch_size"
MOST_GPUS = 4096
"""Maximum number of GPUs of a job, and in a table of throughputs."""


def read_throughputs(path: str | Path, gpus_per_node: int, place: str = "") -> Measured:
    """Read a table of measured throughputs in ElasticFlow's layout. InputError names the file, line and wrong value.

    The header is `global_batch_size,1,2,4,...`: numbers of GPUs, packed on as few nodes as possible. A row holds the
    steps per second with one global batch size; 0, nan or an empty field means not measured. `place`: name of the file
    in error messages, by default its path.
    """
    table = read_table(path, place)
    table.require(_BATCH)
    batch = table.integers(_BATCH)
    table.refuse(_BATCH, batch < 1, "is not a batch size of 1 or more")
    rows: list[tuple[int, int, float]] = []
    for name in [name for name in table.columns if name != _BATCH]:
        if not (name.isascii() and name.isdigit() and 1 <= int(name[:9]) <= MOST_GPUS):
            hint = f"its columns are {_BATCH} and numbers up to {MOST_GPUS:,}"
            raise InputError(table.place, f"column {name!r} is not a number of GPUs", hint)
        table.columns[name] = ["" if text.lower() == "nan" else text for text in table.columns[name]]
        rate = table.numbers(name, may_lack=True)
        table.refuse(name, (rate < 0) | (rate > 1e9), "is not a number of steps per second")
        rows += [(int(b), int(name), 1 / r) for b, r in zip(batch, rate, strict=True) if r > 0]
    if not rows:
        hint = f"needed: {_BATCH} and a column for each number of GPUs"
        raise InputError(table.place, "holds no measurement", hint)
    batches, gpus, step_s = (np.array(column) for column in zip(*sorted(rows), strict=True))
    return Measured(table.place, batches, gpus, -(-gpus // gpus_per_node), step_s)


def table_files(value: str) -> list[Path]:
    """The CSV files of a folder, or the file itself. Raises InputError if there are none."""
    paths = [path for path in files_at(value) if path.suffix == ".csv"]
    if not paths:
        hint = "give a folder with MODEL.csv files"
        raise InputError(f"models.tables = {value!r}", "holds no .csv file", hint)
    return paths


class Models(Component):
    """Models that the jobs train, and the source of their speeds."""

    tables: Annotated[PathName | None, Reads(find=table_files)] = None
    """Folder of measured throughputs, one MODEL.csv for each model, in ElasticFlow's layout; absent: the parameters
    fitted to ElasticFlow's A100 tables."""
    tables_gpus_per_node: int = Field(8, ge=1, le=1024)
    """GPUs per node of the cluster on which the tables were measured."""
    most_gpus: int = Field(64, ge=1, le=4096)
    """Maximum number of GPUs to which elastic schedulers may scale a job; never above its batch size."""


class Catalogue:
    """Makes the profiles of models on nodes with `gpus_per_node` GPUs; a model is fitted when a job first uses it."""

    def __init__(self, models: Models, gpus_per_node: int):
        """Raises InputError if a table is invalid."""
        self._most_gpus, self.gpus_per_node = models.most_gpus, gpus_per_node
        place, per_node = f"models.tables = {models.tables!r}", models.tables_gpus_per_node
        measured = {
            path.stem: read_throughputs(path, per_node, f"{place}, {path.name}")
            for path in (table_files(models.tables) if models.tables is not None else ())
        }
        self.batches = {name: sorted(set(table.batch.tolist())) for name, table in measured.items()} or {
            name: list(batches) for name, (batches, _) in FITTED.items()
        }
        """{model: measured batch sizes}."""
        self._forms = cache(lambda name: fit_step_time(measured[name]) if measured else FITTED[name][1])
        # the measurements hold for nodes of the measured size only; otherwise the fitted form is used
        self._measured = measured if gpus_per_node == per_node else {}

    @property
    def kinds(self) -> list[tuple[str, int]]:
        """All measured (model, batch size) pairs, sorted."""
        return [(name, batch) for name in sorted(self.batches) for batch in self.batches[name]]

    def profile(self, model: str, batch: int) -> FixedBatch:
        """The profile of a model of the catalogue with a global batch size."""
        measured = self._measured[model].of_batch(batch) if model in self._measured else {}
        most_gpus, form = min(self._most_gpus, batch), self._forms(model)
        return FixedBatch(f"{model}/{batch}", form, batch, most_gpus, self.gpus_per_node, measured)
