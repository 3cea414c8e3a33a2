"""Catalogue of the models that jobs train: built-in fits to ElasticFlow's A100 tables, or the user's own tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.text import unknown_name
from hpctrip.cluster.profiles import FixedBatch
from hpctrip.cluster.step_time import StepTime, fit_step_time
from hpctrip.cluster.tables import Measured, read_throughputs
from hpctrip.config.component import Component
from hpctrip.config.sources import Reads, files_at

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


def table_files(value: str) -> list[Path]:
    """The CSV files of a folder, or the file itself. Raises InputError if there are none."""
    paths = [path for path in files_at(value) if path.suffix == ".csv"]
    if not paths:
        raise InputError(
            f"models.tables = {value!r}", "holds no .csv file", "give a folder with MODEL.csv files"
        )
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

    def catalogue(self, gpus_per_node: int) -> Catalogue:
        """Build the catalogue for nodes with `gpus_per_node` GPUs. Raises InputError if a table is invalid."""
        if self.tables is None:
            return Catalogue({}, True, self.most_gpus, gpus_per_node)
        place = f"models.tables = {self.tables!r}"
        measured = {
            path.stem: read_throughputs(path, self.tables_gpus_per_node, f"{place}, {path.name}")
            for path in table_files(self.tables)
        }
        # the measurements hold for nodes of the measured size only; otherwise the fitted form is used
        return Catalogue(measured, gpus_per_node == self.tables_gpus_per_node, self.most_gpus, gpus_per_node)


class Catalogue:
    """Makes the profiles of models; a model is fitted when a job first uses it."""

    def __init__(self, measured: dict[str, Measured], exact: bool, most_gpus: int, gpus_per_node: int):
        """`measured`: {model: measurements}; empty: the models of FITTED. `exact`: use the measured times where there
        are any, not the fitted form alone."""
        self._measured = measured if exact else {}
        self._batches = {name: sorted(set(table.batch.tolist())) for name, table in measured.items()} or {
            name: list(batches) for name, (batches, _) in FITTED.items()
        }
        self._forms = cache(
            lambda name: fit_step_time(measured[name]).step_time if measured else FITTED[name][1]
        )
        self._most_gpus, self.gpus_per_node = most_gpus, gpus_per_node

    @property
    def kinds(self) -> list[tuple[str, int]]:
        """All measured (model, batch size) pairs, sorted."""
        return [(name, batch) for name in sorted(self._batches) for batch in self._batches[name]]

    def __contains__(self, model: str) -> bool:
        return model in self._batches

    def suggest(self, model: str) -> str:
        """Hint for the error message about an unknown model name."""
        return unknown_name(model, self._batches)

    def profile(self, model: str, batch: int) -> FixedBatch:
        """The profile of a model of the catalogue with a global batch size."""
        measured = self._measured[model].of_batch(batch) if model in self._measured else {}
        return FixedBatch(
            f"{model}/{batch}",
            self._forms(model),
            batch,
            min(self._most_gpus, batch),
            self.gpus_per_node,
            measured,
        )
