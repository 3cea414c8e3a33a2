"""Checkpoints: the whole state of a run in one file that proves itself whole, or is not used (record/container.py).

Two generations lie beside the results file. A new one takes the place of the older one by a rename: the newest is never
touched, so at every moment at least one is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file, replace_file
from hpctrip.record import schema
from hpctrip.record.container import Container, Header
from hpctrip.sim.rounds import History

MAGIC = b"HPCTRIP\x02"
SUFFIXES = (".ckpt0", ".ckpt1")
"""The two generations of run.h5 are run.h5.ckpt0 and run.h5.ckpt1; which one is newer, their rounds say."""

_KEPT = "kept"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after a round: with the same input it goes on to the same bits, on any number of ranks."""

    round: int
    clock_s: float
    stop_reason: str
    history: History
    params: np.ndarray
    """The global model, float32 [P]."""
    slots: np.ndarray
    """State of the server optimiser, float64 [num_slots, P]."""
    input_toml: str
    """The merged input of the run."""
    kept: Mapping[int, np.ndarray] = field(default_factory=dict)
    """The state of sites at their hosts (learn/engines/base.py), a float32 row by site; empty where they have none."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the results file goes on with (`created_utc`, `starts`), and versions and devices."""


class _About(BaseModel):
    """The fields of `Checkpoint.about`; other versions may write more or less."""

    model_config = ConfigDict(strict=True)

    created_utc: str = ""
    starts: list[str] = []
    sources: list[str] = []
    parameters: list[str] = []
    made_with: dict[str, str] = {}
    learning_key: str = ""


class _Header(Header):
    round: int = Field(ge=0, lt=2**63)
    clock_s: float = Field(ge=0)
    stop_reason: str
    about: _About
    input_toml: str


_FILE = Container(MAGIC, _Header, "checkpoint", "give a results file or its .ckpt0 or .ckpt1")


def pack(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file; equal checkpoints give equal bytes."""
    arrays = model_arrays(checkpoint.params, checkpoint.slots, checkpoint.kept)
    for table, names in schema.tables(checkpoint.history).items():
        arrays |= {f"{table}/{name}": column.values for name, column in names.items()}
    said = {
        "round": checkpoint.round,
        "clock_s": checkpoint.clock_s,
        "stop_reason": checkpoint.stop_reason,
        "about": dict(checkpoint.about),
        "input_toml": checkpoint.input_toml,
    }
    return _FILE.pack(said, arrays)


def model_arrays(
    params: np.ndarray, slots: np.ndarray, kept: Mapping[int, np.ndarray]
) -> dict[str, np.ndarray]:
    """The state of training as the arrays of a container. Inverse of `model_of`."""
    rows = {f"{_KEPT}/{site}": row for site, row in sorted(kept.items())}
    return {"params": params, "slots": slots, **rows}


def model_of(
    arrays: dict[str, dict[str, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """(params [P], slots [num_slots, P], kept rows by site), taken out of the arrays of a container. Raises ValueError
    or KeyError where they are none."""
    kept = {int(site): row for site, row in arrays.pop(_KEPT, {}).items()}
    state = arrays.pop("")
    if (state["params"].ndim, state["slots"].ndim) != (1, 2):
        raise ValueError(f"parameters of shape {state['params'].shape}, slots of {state['slots'].shape}")
    return state["params"], state["slots"], kept


def model_bytes(num_params: int, num_slots: int, num_kept: int) -> int:
    """Bytes of a checkpoint besides the rows: float32 model, float64 slots, so many numbers kept by sites."""
    return num_params * (4 + 8 * num_slots) + 4 * num_kept


def unpack(data: bytes, place: str) -> Checkpoint:
    """The checkpoint whose file holds `data`. Raises InputError, naming `place`, for anything that is not one."""
    return _FILE.unpack(data, place, _parse)


def _parse(header: _Header, arrays: dict[str, dict[str, np.ndarray]]) -> Checkpoint:
    params, slots, kept = model_of(arrays)
    history = schema.history_of(_rows(arrays))
    checkpoint = Checkpoint(
        round=header.round,
        clock_s=header.clock_s,
        stop_reason=header.stop_reason,
        history=history,
        params=params,
        slots=slots,
        kept=kept,
        input_toml=header.input_toml,
        about=header.about.model_dump(exclude_unset=True),
    )
    last = (history.last.round, history.last.clock_s) if history.last else (0, 0.0)
    if last != (checkpoint.round, checkpoint.clock_s) or len(history) != checkpoint.round:
        raise ValueError(f"round {checkpoint.round}, but {len(history)} rows up to round {last[0]}")
    return checkpoint


def _rows(tables: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """The tables, whose columns must have the types of the schema and, in each table, one length. A column that came
    later holds its default where the file is older."""
    for table, names in schema.TABLES.items():
        rows = tables[table]["round"].shape
        for name, about in names.items():
            if "is_counted" in about and name not in tables[table]:
                continue
            if "default" in about:
                tables[table].setdefault(name, np.full(rows, about["default"], dtype=about["dtype"]))
            values = tables[table][name]
            if values.dtype != np.dtype(about["dtype"]) or values.ndim != 1 or values.shape != rows:
                raise ValueError(f"column {table}/{name} of type {values.dtype}, shape {values.shape}")
    return tables


def read(path: str | Path) -> Checkpoint:
    """The checkpoint in a file. Raises InputError where there is none, and where it is damaged or malformed."""
    return unpack(read_file(path), str(path))


def generations(results: str | Path) -> list[Path]:
    """The paths of the checkpoints of a results file, whether or not they exist."""
    return [Path(f"{results}{suffix}") for suffix in SUFFIXES]


def newest(results: str | Path) -> tuple[Checkpoint | None, Path | None, list[str]]:
    """(checkpoint, its file, what is wrong with the other one): the newest whole one beside a results file.

    (None, None, []) where there is none at all. Raises InputError, naming each, where all there are are damaged.
    """
    found, faults = [], []
    for path in generations(results):
        if not path.exists():
            continue
        try:
            found.append((read(path), path))
        except InputError as error:
            faults += error.faults
    if not found:
        if faults:
            raise InputError(faults=faults)
        return None, None, []
    checkpoint, path = max(found, key=lambda pair: pair[0].round)
    return checkpoint, path, [str(fault) for fault in faults]


class Generations:
    """Writes checkpoints beside a results file, each over the older of two. `kept` is the one not to touch next."""

    def __init__(self, results: str | Path, kept: Path | None = None):
        self.results = results
        self._paths = generations(results)
        self._next = 0 if kept is None or kept == self._paths[1] else 1

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write one, whole or not at all. Raises as `replace_file`; the other generation stays as it is."""
        path = self._paths[self._next]
        replace_file(path, pack(checkpoint))
        self._next = 1 - self._next
        return path

    def clear(self) -> None:
        """Remove what an earlier run left under these names."""
        for path in self._paths:
            path.unlink(missing_ok=True)
