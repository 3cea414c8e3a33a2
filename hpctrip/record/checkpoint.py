"""Checkpoints: the complete state of a run in one file with a checksum (record/container.py).

Two generations lie beside the results file. A new checkpoint replaces the older one by a rename and leaves the newest
unchanged, so at least one of them is intact at any time.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file, replace_file
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.config.sources import PLUGINS, read_sources
from hpctrip.record import schema
from hpctrip.record.container import Container
from hpctrip.sim.rounds import History
from hpctrip.sim.step import State

MAGIC = b"HPCTRIP\x02"
SUFFIXES = (".ckpt0", ".ckpt1")
"""Suffixes of the two generations: run.h5.ckpt0 and run.h5.ckpt1. The one with more rounds is the newer."""

_SITE_STATES = "kept"
"""The table of site states in the file."""


@dataclass(frozen=True, eq=False)
class Model:
    """The model after a round, with all that training on needs. Shapes: P parameters."""

    params: np.ndarray
    """The global model, float32 [P]."""
    slots: np.ndarray
    """State of the server optimiser, float64 [num_slots, P]."""
    site_states: Mapping[int, np.ndarray] = field(default_factory=dict)
    """{site: float32 state that the site keeps between rounds} (`learn.engines.base.SiteState`); empty where none
    does."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a container. Inverse of `of`."""
        rows = {f"{_SITE_STATES}/{site}": row for site, row in sorted(self.site_states.items())}
        return {"params": self.params, "slots": self.slots, **rows}

    @classmethod
    def of(cls, arrays: dict[str, dict[str, np.ndarray]]) -> Self:
        """Take the model out of the arrays of a container."""
        site_states = {int(site): row for site, row in arrays.pop(_SITE_STATES, {}).items()}
        return cls(**arrays.pop(""), site_states=site_states)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after a round. With the same input the run continues from it with the same bits, on any number
    of ranks."""

    state: State
    model: Model
    input_toml: str
    """The merged input of the run."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the resumed results file continues (`created_utc`, `starts`), sources, versions and devices."""


_FILE = Container(MAGIC, "checkpoint", "give a results file or its .ckpt0 or .ckpt1")


def pack(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file; equal checkpoints give equal bytes."""
    state = checkpoint.state
    arrays = checkpoint.model.arrays() | history_arrays(state.history)
    fields = {
        "round": state.round,
        "clock_s": state.clock_s,
        "stop_reason": state.stop_reason,
        "about": dict(checkpoint.metadata),
        "input_toml": checkpoint.input_toml,
    }
    return _FILE.pack(fields, arrays)


def history_arrays(history: History) -> dict[str, np.ndarray]:
    """The columns of a history as the arrays of a container. Inverse of `history_of`."""
    tables = schema.tables(history).items()
    return {f"{table}/{name}": column.values for table, names in tables for name, column in names.items()}


def history_of(arrays: dict[str, dict[str, np.ndarray]]) -> History:
    """The history in the arrays of a container, with the defaults of columns that are newer than the file."""
    for table, names in schema.TABLES.items():
        num_rows = len(arrays[table]["round"])
        for name, spec in names.items():
            if "default" in spec and "is_counted" not in spec:
                arrays[table].setdefault(name, np.full(num_rows, spec["default"], dtype=spec["dtype"]))
    return schema.history_of(arrays)


def model_bytes(num_params: int, num_slots: int, num_site_values: int) -> int:
    """Bytes of the arrays of a checkpoint without its rows: float32 model, float64 slots, float32 site states."""
    return num_params * (4 + 8 * num_slots) + 4 * num_site_values


def unpack(data: bytes, place: str) -> Checkpoint:
    """Parse the bytes of a checkpoint. Raises InputError, naming `place`, where they are not an intact checkpoint."""
    header, arrays = _FILE.unpack(data, place)
    model = Model.of(arrays)
    state = State(header["round"], header["clock_s"], history_of(arrays), header["stop_reason"])
    return Checkpoint(state, model, header["input_toml"], header["about"])


def read(path: str | Path) -> Checkpoint:
    """Read a checkpoint. Raises InputError where the file does not exist or is damaged."""
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
    checkpoint, path = max(intact, key=lambda pair: pair[0].state.round)
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


class Checkpointing(Component):
    """Intervals of the checkpoints beside the results file; nothing here changes a result."""

    enabled: bool = True
    """Write checkpoints at all."""
    every_s: Seconds = Field(60.0, ge=0)
    """Wall time between two checkpoints."""
    max_fraction: float = Field(0.005, gt=0, le=1)
    """Upper bound on the fraction of the wall time that writing takes; where it is reached, every_s is exceeded."""
    every_rounds: int | None = Field(None, ge=1)
    """Also write one every this number of rounds, whatever it costs."""


class Checkpointer:
    """Writes checkpoints when they are due, at intervals that depend on the cost of the last one."""

    def __init__(
        self,
        rules: Checkpointing,
        files: Generations,
        input_toml: str,
        metadata: Mapping[str, Any],
        saved_round: int,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """`saved_round` is the round of the checkpoint on disk, 0 for none; `clock` is the wall clock in seconds."""
        self._rules, self._files, self._clock = rules, files, clock
        self._input_toml, self._metadata = input_toml, metadata
        self._saved, self._end, self.cost_s, self.spent_s = saved_round, clock(), 0.0, 0.0

    @property
    def resume_hint(self) -> str:
        """The command that resumes an interrupted run; it names the run's plug-ins again."""
        if not self._rules.enabled:
            return "nothing to resume from (checkpoint.enabled = false)"
        results = str(self._files.results)
        sources = read_sources(self._metadata.get("sources", []), results)
        plugins = [word for source in sources if source.key == PLUGINS for word in ("--plugin", source.path)]
        return f"resume with: {shlex.join(['python', '-m', 'hpctrip', 'resume', results, *plugins])}"

    def due(self, state: State, over: bool) -> bool:
        """Whether a checkpoint of `state` is due. At the end of the run (`over`) one always is."""
        rules, rounds = self._rules, state.round - self._saved
        if not rules.enabled or not state.round or (rounds == 0 and not (over and state.stop_reason)):
            return False
        waited_s = self._clock() - self._end
        paced = waited_s >= max(rules.every_s, self.cost_s / rules.max_fraction)
        return over or paced or (rules.every_rounds is not None and rounds >= rules.every_rounds)

    def save(self, state: State, model: Model) -> None:
        """Write a checkpoint. Raises HpctripError where it cannot be written; the previous one is then intact."""
        start = self._clock()
        self._files.write(Checkpoint(state, model, self._input_toml, self._metadata))
        self._saved, self._end = state.round, self._clock()
        self.cost_s = self._end - start
        self.spent_s += self.cost_s
