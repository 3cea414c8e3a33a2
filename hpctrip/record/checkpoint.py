"""Checkpoints: the complete state of a run in one file with a checksum (record/container.py).

Two generations lie beside the results file. A new checkpoint replaces the older one by a rename and leaves the newest
unchanged, so at least one of them is intact at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file, replace_file
from hpctrip.record import schema
from hpctrip.record.container import Container, Header
from hpctrip.sim.rounds import History

MAGIC = b"HPCTRIP\x02"
SUFFIXES = (".ckpt0", ".ckpt1")
"""Suffixes of the two generations: run.h5.ckpt0 and run.h5.ckpt1. The one with more rounds is the newer."""

_SITE_STATES = "kept"
"""The table of site states in the file."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after a round. With the same input the run continues from it with the same bits, on any number
    of ranks. Shapes: P parameters."""

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
    site_states: Mapping[int, np.ndarray] = field(default_factory=dict)
    """{site: float32 state that the site keeps between rounds} (`learn.engines.base.SiteState`); empty where none
    does."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the resumed results file continues (`created_utc`, `starts`), sources, versions and devices."""


class _Header(Header):
    round: int
    clock_s: float
    stop_reason: str
    about: dict[str, Any]
    input_toml: str


_FILE = Container(MAGIC, _Header, "checkpoint", "give a results file or its .ckpt0 or .ckpt1")


def pack(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file; equal checkpoints give equal bytes."""
    arrays = model_arrays(checkpoint.params, checkpoint.slots, checkpoint.site_states)
    for table, names in schema.tables(checkpoint.history).items():
        arrays |= {f"{table}/{name}": column.values for name, column in names.items()}
    fields = {
        "round": checkpoint.round,
        "clock_s": checkpoint.clock_s,
        "stop_reason": checkpoint.stop_reason,
        "about": dict(checkpoint.metadata),
        "input_toml": checkpoint.input_toml,
    }
    return _FILE.pack(fields, arrays)


def model_arrays(
    params: np.ndarray, slots: np.ndarray, site_states: Mapping[int, np.ndarray]
) -> dict[str, np.ndarray]:
    """Model, server state and site states as the arrays of a container. Inverse of `model_of`."""
    rows = {f"{_SITE_STATES}/{site}": row for site, row in sorted(site_states.items())}
    return {"params": params, "slots": slots, **rows}


def model_of(
    arrays: dict[str, dict[str, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """(params [P], slots [num_slots, P], site states), taken out of the arrays of a container. Raises KeyError for a
    missing array."""
    site_states = {int(site): row for site, row in arrays.pop(_SITE_STATES, {}).items()}
    state = arrays.pop("")
    return state["params"], state["slots"], site_states


def model_bytes(num_params: int, num_slots: int, num_site_values: int) -> int:
    """Bytes of the arrays of a checkpoint without its rows: float32 model, float64 slots, float32 site states."""
    return num_params * (4 + 8 * num_slots) + 4 * num_site_values


def unpack(data: bytes, place: str) -> Checkpoint:
    """Parse the bytes of a checkpoint. Raises InputError, naming `place`, where they are not an intact checkpoint."""
    return _FILE.unpack(data, place, _parse)


def _parse(header: _Header, arrays: dict[str, dict[str, np.ndarray]]) -> Checkpoint:
    params, slots, site_states = model_of(arrays)
    for table, names in schema.TABLES.items():  # columns that are newer than the file
        num_rows = len(arrays[table]["round"])
        for name, spec in names.items():
            if "default" in spec and "is_counted" not in spec:
                arrays[table].setdefault(name, np.full(num_rows, spec["default"], dtype=spec["dtype"]))
    return Checkpoint(
        round=header.round,
        clock_s=header.clock_s,
        stop_reason=header.stop_reason,
        history=schema.history_of(arrays),
        params=params,
        slots=slots,
        site_states=site_states,
        input_toml=header.input_toml,
        metadata=header.about,
    )


def read(path: str | Path) -> Checkpoint:
    """Read a checkpoint. Raises InputError where the file does not exist, is damaged or is malformed."""
    return unpack(read_file(path), str(path))


def generations(results: str | Path) -> list[Path]:
    """The paths of the checkpoints of a results file, whether or not they exist."""
    return [Path(f"{results}{suffix}") for suffix in SUFFIXES]


def newest(results: str | Path) -> tuple[Checkpoint | None, Path | None, list[str]]:
    """The newest intact checkpoint beside a results file: (checkpoint, its path, faults of the other one).

    (None, None, []) where there is no checkpoint. Raises InputError, naming each, where all that exist are damaged.
    """
    intact, faults = [], []
    for path in generations(results):
        if not path.exists():
            continue
        try:
            intact.append((read(path), path))
        except InputError as error:
            faults += error.faults
    if not intact:
        if faults:
            raise InputError(faults=faults)
        return None, None, []
    checkpoint, path = max(intact, key=lambda pair: pair[0].round)
    return checkpoint, path, [str(fault) for fault in faults]


class Generations:
    """Writes checkpoints beside a results file, each in place of the older of two."""

    def __init__(self, results: str | Path, newest: Path | None = None):
        """`newest` is the checkpoint from which the run resumes; the next one does not replace it."""
        self.results = results
        self._paths = generations(results)
        self._next = 0 if newest is None or newest == self._paths[1] else 1

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint atomically and return its path. Raises as `replace_file`; the other generation is
        unchanged."""
        path = self._paths[self._next]
        replace_file(path, pack(checkpoint))
        self._next = 1 - self._next
        return path

    def clear(self) -> None:
        """Remove the checkpoints of an earlier run."""
        for path in self._paths:
            path.unlink(missing_ok=True)
