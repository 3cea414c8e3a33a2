"""Workloads of Pollux's simulator (petuum/adaptdl, branch osdi21-artifact)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName, named_path
from hpctrip.cluster.goodput import Application, Training
from hpctrip.cluster.models import Catalogue
from hpctrip.cluster.traces.base import TRACES, Raw, Trace, gpu_counts, not_recorded, submission_times
from hpctrip.config.sources import Reads

_LARGEST_LOCAL = {"yolov3": 8}
"""{application: largest batch of a GPU}, as set in AdaptDL's simulator."""
_ONE_GPU = ("ncf",)
"""Applications that AdaptDL's simulator never scales."""
_MOST_GPUS = 64
"""Maximum number of GPUs to which a job may be scaled."""


def application_files(value: str) -> list[Path]:
    """The CSV files in the folders of applications. Raises InputError if there are none."""
    paths = sorted(named_path(value, value).glob("*/*.csv"))
    if not paths:
        hint = "give the folder simulator/traces of AdaptDL's artifact"
        raise InputError(f"jobs.applications = {value!r}", "holds no APPLICATION/*.csv", hint)
    return paths


@TRACES.add
class Pollux(Trace):
    """Reads simulator/workloads/workload-*.csv: trainings of six applications with measured speed and gradient noise.

    Columns: name, time (s), application, num_replicas, batch_size. `applications` is the folder simulator/traces, with
    one folder for each application that holds placements.csv, scalability.csv and validation-BATCH.csv.
    """

    kind = "pollux"
    path: Annotated[PathName, Reads()]
    """The CSV file of the workload."""
    applications: Annotated[PathName, Reads(find=application_files)]
    """The folder of the applications."""
    batch: Literal["as-submitted", "adaptive"] = "as-submitted"
    """Whether a job keeps its batch size or uses the fastest one for its present GPUs."""

    def raw(self, catalogue: Catalogue) -> Raw:
        """Every line is one training, whose work is 1."""
        table = read_table(self.path, f"jobs.path = {self.path!r}")
        table.require("name", "time", "application", "num_replicas", "batch_size")
        names, batches = table.texts("application"), table.integers("batch_size")
        folder = Path(self.applications).expanduser()
        measured = {
            name: "/" not in name and (folder / name / "placements.csv").is_file() for name in set(names)
        }
        wrong = np.array([not measured[name] for name in names], bool)
        table.refuse("application", wrong, f"has no placements.csv in {self.applications}")
        applications = {name: read_application(folder / name) for name in sorted(measured)}
        low = np.array([applications[name].smallest_batch for name in names], int)
        high = np.array([applications[name].largest_batch for name in names], int)
        table.refuse(
            "batch_size", (batches < low) | (batches > high), "is outside the batch sizes that were measured"
        )
        kinds = list(zip(names, batches.tolist(), strict=True))
        return Raw(
            place=table.place,
            name=table.texts("name"),
            submit_s=submission_times(table, "time"),
            gpus=gpu_counts(table, "num_replicas"),
            duration_s=not_recorded(len(names)),
            steps=np.ones(len(names)),
            kind=kinds,
            profiles={kind: self._training(applications[kind[0]], kind[1], catalogue) for kind in set(kinds)},
        )

    def _training(self, application: Application, batch: int, catalogue: Catalogue) -> Training:
        adapts = self.batch == "adaptive" and application.name not in _ONE_GPU
        most = (application.largest_batch if adapts else batch) // application.local_range[0]
        most = 1 if application.name in _ONE_GPU else max(1, min(most, _MOST_GPUS))
        name = f"{application.name}/{'adaptive' if adapts else batch}"
        return Training(name, application, catalogue.gpus_per_node, most, None if adapts else batch)


def read_application(folder: Path) -> Application:
    """Read the measurements of an application. InputError names the file and the wrong line."""
    packed, spread = (read_table(folder / f"{name}.csv") for name in ("placements", "scalability"))
    packed.require("placement", "local_bsz", "step_time", "sync_time")
    spread.require("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    placement = list(packed.texts("placement"))
    packed.refuse(
        "placement", np.array([not text.isdigit() for text in placement], bool), "is no row of digits"
    )
    columns = {
        name: np.concatenate([table.numbers(name) for table in (packed, spread)])
        for name in ("local_bsz", "step_time", "sync_time")
    }
    for table in (packed, spread):
        step_s, sync_s = table.numbers("step_time"), table.numbers("sync_time")
        table.refuse("step_time", (step_s <= sync_s) | (sync_s < 0), "is not above sync_time")
    progress, noise = _validation(folder)
    return Application(
        name=folder.name,
        placement=(*placement, *[""] * len(spread.lines)),
        nodes=np.concatenate([[len(text) for text in placement], spread.integers("num_nodes")]).astype(int),
        gpus=np.concatenate(
            [[sum(map(int, text)) for text in placement], spread.integers("num_replicas")]
        ).astype(int),
        local_batch=columns["local_bsz"],
        step_s=columns["step_time"],
        sync_s=columns["sync_time"],
        progress=progress,
        noise=noise,
        largest_local=_LARGEST_LOCAL.get(folder.name),
    )


def _validation(folder: Path) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Read ([E] progress of each epoch, {batch size: [2, E] noise}) of the E epochs that all batch sizes have."""
    tables = {}
    for path in folder.glob("validation-*.csv"):
        size = path.stem.removeprefix("validation-")
        if size.isdigit():
            tables[int(size)] = read_table(path)
            tables[int(size)].require("progress", "grad_sqr", "grad_var")
    if not tables:
        raise InputError(
            str(folder), "holds no validation-BATCH.csv", "give the folders of AdaptDL's artifact"
        )
    epochs = min(len(table.lines) for table in tables.values())
    reached = np.min([table.numbers("progress")[:epochs] for table in tables.values()], axis=0)
    noise = {
        size: np.stack([table.numbers("grad_sqr")[:epochs], table.numbers("grad_var")[:epochs]])
        for size, table in sorted(tables.items())
    }
    return np.diff(reached, prepend=0.0), noise
