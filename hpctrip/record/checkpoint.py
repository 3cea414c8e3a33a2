"""Checkpoints: the whole state of a run in one file that proves itself whole, or is not used.

Layout, in this order and without gaps:

    8 bytes   magic
    8 bytes   length of the header, little-endian
    header    JSON: round, clock_s, stop_reason, about, input_toml, and [name, dtype, shape] of every array
    arrays    their little-endian bytes, in the header's order
    32 bytes  BLAKE2b of everything before

The checksum is compared before anything else is looked at, so that damage never reaches a parser; nothing is ever
unpickled or executed. Two generations lie beside the results file. A new one takes the place of the older one by a
rename: the newest is never touched, so at every moment at least one is whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from hpctrip.base.errors import InputError
from hpctrip.base.files import read_file
from hpctrip.base.output import replace_file
from hpctrip.record import schema
from hpctrip.sim.rounds import History

MAGIC = b"HPCTRIP\x02"
"""The last byte is the version of the layout."""
SUFFIXES = (".ckpt0", ".ckpt1")
"""The two generations of run.h5 are run.h5.ckpt0 and run.h5.ckpt1; which one is newer, their rounds say."""

_DIGEST_BYTES = 32
_KEPT = "kept"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that survives a round. With the same input it is continued to the same bits, on any number of ranks."""

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
    """What sites keep at their hosts (learn/memory.py), a float32 row by site; empty where they keep nothing."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the results file goes on saying (`created_utc`, `starts`) and what the run was made with."""


def pack(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file; equal checkpoints give equal bytes."""
    arrays = {"params": _little(checkpoint.params), "slots": _little(checkpoint.slots)}
    arrays |= {f"{_KEPT}/{site}": _little(row) for site, row in sorted(checkpoint.kept.items())}
    for table, names in schema.tables(checkpoint.history).items():
        arrays |= {f"{table}/{name}": _little(column.values) for name, column in names.items()}
    header = json.dumps(
        {
            "round": checkpoint.round,
            "clock_s": checkpoint.clock_s,
            "stop_reason": checkpoint.stop_reason,
            "about": dict(checkpoint.about),
            "input_toml": checkpoint.input_toml,
            "arrays": [[name, values.dtype.str, list(values.shape)] for name, values in arrays.items()],
        }
    ).encode()
    parts = [MAGIC, struct.pack("<Q", len(header)), header, *(values.data for values in arrays.values())]
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def model_bytes(num_params: int, num_slots: int, num_kept: int) -> int:
    """Size of what a checkpoint holds besides the rows: float32 model, float64 slots, so many numbers kept by sites."""
    return num_params * (4 + 8 * num_slots) + 4 * num_kept


def _little(values: np.ndarray) -> np.ndarray:
    """Contiguous, little-endian."""
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))


def unpack(data: bytes, place: str) -> Checkpoint:
    """The checkpoint whose file holds `data`. Raises InputError, naming `place`, for anything that is not one."""
    body, stored = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if data[: len(MAGIC) - 1] != MAGIC[:-1]:
        raise InputError(place, "is not an hpctrip checkpoint", "give a results file or its .ckpt0 or .ckpt1")
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != stored:
        raise InputError(place, f"is damaged ({len(data)} bytes do not match their checksum)", _RESTORE)
    if data[: len(MAGIC)] != MAGIC:
        raise InputError(
            place, f"has layout {data[7]}; this hpctrip reads layout {MAGIC[7]}", "use the one that wrote it"
        )
    try:
        return _parse(memoryview(body))
    # pydantic's error is a ValueError
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
        struct.error,
    ) as error:
        raise InputError(place, f"is malformed ({' '.join(str(error).split())})", _RESTORE) from error


_RESTORE = "restore a copy"


class _Header(BaseModel):
    """What the header must be, for a right checksum proves only that nobody changed the file by mistake."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    round: int = Field(ge=0, lt=2**63)
    clock_s: float = Field(ge=0)
    stop_reason: str
    about: dict[str, str | list[str] | dict[str, str]]
    input_toml: str
    arrays: list[tuple[str, Literal["<f4", "<f8", "<i8"], list[Annotated[int, Field(ge=0, lt=2**48)]]]]


def _parse(body: memoryview) -> Checkpoint:
    start = len(MAGIC) + 8
    (length,) = struct.unpack("<Q", body[len(MAGIC) : start])
    end = start + length
    header = _Header.model_validate_json(bytes(body[start:end]))
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for path, dtype, shape in header.arrays:
        start, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        if end > len(body):
            raise ValueError(f"array {path} of shape {shape} ends beyond the file")
        table, _, name = path.rpartition("/")
        values = np.frombuffer(body[start:end], dtype=dtype).reshape(shape).copy()
        arrays.setdefault(table, {})[name] = values
    if end != len(body):
        raise ValueError(f"{len(body)} bytes, not {end}")
    kept = {int(site): row for site, row in arrays.pop(_KEPT, {}).items()}
    state = arrays.pop("")
    if (state["params"].ndim, state["slots"].ndim) != (1, 2):
        raise ValueError(f"parameters of shape {state['params'].shape}, slots of {state['slots'].shape}")
    history = schema.history_of(_rows(arrays))
    checkpoint = Checkpoint(
        round=header.round,
        clock_s=header.clock_s,
        stop_reason=header.stop_reason,
        history=history,
        params=state["params"],
        slots=state["slots"],
        kept=kept,
        input_toml=header.input_toml,
        about=header.about,
    )
    last = (history.last.round, history.last.clock_s) if history.last else (0, 0.0)
    if last != (checkpoint.round, checkpoint.clock_s) or len(history) != checkpoint.round:
        raise ValueError(f"round {checkpoint.round}, but {len(history)} rows up to round {last[0]}")
    return checkpoint


def _rows(tables: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """The tables, whose columns must have the types of the schema and, in each table, one length."""
    for table, names in schema.TABLES.items():
        rows = tables[table]["round"].shape
        for name, about in names.items():
            values = tables[table][name]
            if values.dtype != np.dtype(about["dtype"]) or values.ndim != 1 or values.shape != rows:
                raise ValueError(f"column {table}/{name} of type {values.dtype}, shape {values.shape}")
    return tables


def read(path: str | Path) -> Checkpoint:
    """The checkpoint in a file. Raises InputError where there is none, where it is damaged or malformed, and where it
    is larger than half of this machine's memory, as it is copied while it is read."""
    return unpack(read_file(path, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2), str(path))


def generations(results: str | Path) -> list[Path]:
    """Where the checkpoints of a results file are, whether or not they exist."""
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
