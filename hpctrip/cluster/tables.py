"""Reads tables of measured throughputs in ElasticFlow's layout, one CSV file for each model.

The header is `global_batch_size,1,2,4,...`: numbers of GPUs, packed on as few nodes as possible. A row holds the steps
per second with one global batch size; 0, nan or an empty field means not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError

_BATCH = "global_batch_size"
MOST_GPUS = 4096
"""Maximum number of GPUs in a table."""


@dataclass(frozen=True)
class Measured:
    """M measured step times of one model."""

    place: str
    """Name of the file in error messages."""
    batch: np.ndarray
    """[M] global batch sizes in samples."""
    gpus: np.ndarray
    """[M] numbers of GPUs."""
    nodes: np.ndarray
    """[M] numbers of nodes."""
    step_s: np.ndarray
    """[M] times of a step in seconds."""

    def of_batch(self, batch: int) -> dict[int, float]:
        """{GPUs: seconds of a step} with this global batch, by rising number of GPUs."""
        here = self.batch == batch
        return dict(sorted(zip(self.gpus[here].tolist(), self.step_s[here].tolist(), strict=True)))


def read_throughputs(path: str | Path, gpus_per_node: int, place: str = "") -> Measured:
    """Read the measurements of a file. InputError names the file, the line and the wrong value.

    `place`: name of the file in error messages, by default its path.
    """
    table = read_table(path, place)
    table.require(_BATCH)
    batch = table.integers(_BATCH)
    table.refuse(_BATCH, batch < 1, "is no batch size of 1 or more")
    rows: list[tuple[int, int, float]] = []
    for name, texts in table.columns.items():
        if name == _BATCH:
            continue
        gpus = _count(name, table.place)
        table.columns[name] = ["" if text.lower() == "nan" else text for text in texts]
        rate = table.numbers(name, may_lack=True)
        table.refuse(name, (rate < 0) | (rate > 1e9), "is no number of steps per second")
        rows += [(int(b), gpus, 1 / r) for b, r in zip(batch, rate, strict=True) if r > 0]
    if not rows:
        raise InputError(
            table.place, "holds no measurement", f"needed: {_BATCH} and a column for each number of GPUs"
        )
    columns = [np.array(column) for column in zip(*sorted(rows), strict=True)]
    return Measured(table.place, columns[0], columns[1], -(-columns[1] // gpus_per_node), columns[2])


def _count(name: str, place: str) -> int:
    if not (name.isascii() and name.isdigit() and 1 <= int(name[:9]) <= MOST_GPUS):
        raise InputError(
            place,
            f"column {name!r} is no number of GPUs",
            f"its columns are {_BATCH} and numbers up to {MOST_GPUS:,}",
        )
    return int(name)
