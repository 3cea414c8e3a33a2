"""Checkpoints: the complete state of a run in one file with a checksum (record/container.py).

Two generations lie beside the results file. A new checkpoint replaces the older one by a rename and leaves the newest
unchanged, so at least one of them is intact at any time.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file, remove_file, replace_file
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.config.sources import PLUGINS, read_sources
from hpctrip.record import schema
from hpctrip.record.container import Arrays, Container
from hpctrip.sim.rounds import History
from hpctrip.sim.step import State

MAGIC = b"HPCTRIP\x02"
SUFFIXES = (".ckpt0", ".ckpt1")
"""Suffixes of the two generations: run.h5.ckpt0 and run.h5.ckpt1. The one with more rounds is the newer."""

_BY_SITE = {"site_states": "kept", "updates": "under_way"}
"""{field of a model with a row for each of some sites: its table in the file}."""


@dataclass(frozen=True, eq=False)
class Model:
    """The model after a round, with all that training on needs. Shapes: P parameters, B entries of buffers."""

    params: np.ndarray
    """The global model, float32 [P + B]."""
    slots: np.ndarray
    """State of the server optimiser, float64 [num_slots, P]."""
    site_states: Mapping[int, np.ndarray] = field(default_factory=dict)
    """{site: float32 state that the site keeps between rounds} (`learn.engines.base.SiteState`); empty where none
    does."""
    updates: Mapping[int, np.ndarray] = field(default_factory=dict)
    """{site: its update that is under way, float32, as `SiteState.keep` packs it}."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a container. Inverse of `of`."""
        rows = {
            f"{table}/{site}": row
            for name, table in _BY_SITE.items()
            for site, row in sorted(getattr(self, name).items())
        }
        return {"params": self.params, "slots": self.slots, **rows}

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        """Take the model out of the arrays of a container."""
        by_site = {
            name: {int(site): row for site, row in arrays.pop(table, {}).items()}
            for name, table in _BY_SITE.items()
        }
        return cls(**arrays.pop(""), **by_site)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after a round. With the same input the run continues from it, bitwise the same, on any number
    of ranks."""

    state: State
    model: Model
    input_toml: str
    """The merged input of the run."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the resumed results file continues (`created_utc`, `starts`), sources, versions and devices."""


_FILE = Container(MAGIC, "checkpoint", "give a results file or its .ckpt0 or .ckpt1")


def pack(checkpoint: Checkpoint) -> Iterator[bytes | memoryview]:
    """The bytes of the file, in pieces; equal checkpoints give equal bytes."""
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
    """The columns of a history as the arrays of a container. Inverse of `schema.history_of`."""
    tables = schema.tables(history).items()
    return {f"{table}/{name}": column.values for table, names in tables for name, column in names.items()}


def model_bytes(num_params: int, num_slots: int, num_site_values: int) -> int:
    """Bytes of the arrays of a checkpoint without its rows: float32 model, float64 slots, float32 site states."""
    return num_params * (4 + 8 * num_slots) + 4 * num_site_values


def unpack(data: bytes, place: str) -> Checkpoint:
    """Parse the bytes of a checkpoint. Raises InputError, naming `place`, where they are not an intact checkpoint."""
    header, arrays = _FILE.unpack(data, place)
    model = Model.of(arrays)
    history = schema.history_of(arrays)
    state = State(header["round"], header["clock_s"], history, header["stop_reason"])
    return Checkpoint(state, model, header["input_toml"], header["about"])


def read(path: str | Path) -> Checkpoint:
    """Read a checkpoint. Raises InputError where the file does not exist or is damaged."""
    return unpack(read_file(path), str(path))


def generations(results: str | Path) -> list[Path]:
    """The paths of the checkpoints of a results file, whether or not they exist."""
    return [Path(f"{results}{suffix}") for suffix in SUFFIXES]


def newest(results: str | Path) -> tuple[Checkpoint, Path, list[str]] | None:
    """The newest intact checkpoint beside a results file: (checkpoint, its path, faults of the other one).

    None where there is no checkpoint. Raises InputError, naming each, where all that exist are damaged.
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
        return None
    checkpoint, path = max(intact, key=lambda pair: pair[0].state.round)
    return checkpoint, path, [str(fault) for fault in faults]


def find(source: str, hint: str = "") -> tuple[Checkpoint, Path, list[str]]:
    """The checkpoint `source`, or the newest intact one beside the results file `source`, as `newest`. Raises
    InputError, which begins with this hint, where there is none."""
    if Path(source).suffix in SUFFIXES:
        return read(source), Path(source), []
    if saved := newest(source):
        return saved
    looked = " and ".join(map(str, generations(source)))
    raise InputError(source, "has no checkpoint beside it", f"{hint}looked for {looked}")


def named_arrays(checkpoint: Checkpoint, place: Path) -> dict[str, np.ndarray]:
    """{name: array} of the parameters and buffers of a checkpoint, the file at `place`. Raises InputError where it does
    not name them."""
    texts, params = checkpoint.metadata.get("parameters"), checkpoint.model.params
    if texts is None:
        problem = "does not name its parameters: an older hpctrip wrote it"
        raise InputError(str(place), problem, "resume it for a round")
    names, sizes = zip(*(text.partition(" ")[::2] for text in texts), strict=True)
    shapes = [[int(size) for size in text.split("x") if size] for text in sizes]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    parts = np.split(params, ends[:-1])
    return {name: part.reshape(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}


def write(results: str | Path, checkpoint: Checkpoint, newest: Path | None = None) -> Path:
    """Write a checkpoint beside a results file and return its path. It replaces the older generation; `newest` is the
    newer one, which stays unchanged. Raises as `replace_file`."""
    path = next(path for path in generations(results) if newest is None or path.suffix != newest.suffix)
    replace_file(path, pack(checkpoint))
    return path


class Checkpointing(Component):
    """Intervals of the checkpoints beside the results file; nothing here changes a result."""

    enabled: bool = True
    """Whether to write checkpoints."""
    every_s: Seconds = Field(60.0, ge=0)
    """Wall time between two checkpoints."""
    max_fraction: float = Field(0.005, gt=0, le=1)
    """Maximum fraction of the wall time spent on writing; the interval exceeds every_s if necessary."""
    every_rounds: int | None = Field(None, ge=1)
    """Also write one every this number of rounds, regardless of the cost."""


class Checkpointer:
    """Writes checkpoints when they are due, at intervals that depend on the cost of the last one. What it keeps is
    about the files: the next start reads them anew."""

    def __init__(
        self,
        rules: Checkpointing,
        results: str | Path,
        input_toml: str,
        metadata: Mapping[str, Any],
        saved_round: int = 0,
        newest: Path | None = None,
    ):
        """`newest` is the checkpoint from which the run resumes, and `saved_round` its round; None: a new run, which
        replaces that of any checkpoints there are."""
        self._replaced = set(generations(results)) if newest is None else set()
        self._rules, self._results = rules, results
        self.newest = newest
        """The newest checkpoint of this run; None: it has none."""
        self._input_toml, self._metadata = input_toml, metadata
        self._saved, self._end, self.cost_s, self.spent_s = saved_round, time.perf_counter(), 0.0, 0.0

    @property
    def unsaved(self) -> str:
        """The rounds of a run that leaves which are in no checkpoint, and why, as text; empty: all are in one."""
        if self._rules.enabled:
            return ""
        place = (
            f"a resumed run trains all after round {self._saved} again"
            if self._saved
            else "nothing to resume from"
        )
        return f"{place} (checkpoint.enabled = false)"

    @property
    def resume_hint(self) -> str:
        """The command that resumes an interrupted run; it names the run's plug-ins again."""
        results = str(self._results)
        sources = read_sources(self._metadata.get("sources", []))
        plugins = [word for source in sources if source.key == PLUGINS for word in ("--plugin", source.path)]
        return f"resume with: {shlex.join(['python', '-m', 'hpctrip', 'resume', results, *plugins])}"

    def remove_replaced(self) -> None:
        """Remove the checkpoints of the run that this one replaces: once its results are written, not before, so that
        a run that fails at its start destroys nothing."""
        for path in self._replaced:
            remove_file(path)
        self._replaced = set()

    def due(self, state: State, over: bool) -> bool:
        """Whether a checkpoint of `state` is due. At the end of the run (`over`) one always is."""
        rules, rounds = self._rules, state.round - self._saved
        if not rules.enabled or not state.round or (rounds == 0 and not (over and state.stop_reason)):
            return False
        waited_s = time.perf_counter() - self._end
        paced = waited_s >= max(rules.every_s, self.cost_s / rules.max_fraction)
        return over or paced or (rules.every_rounds is not None and rounds >= rules.every_rounds)

    def save(self, state: State, model: Model) -> None:
        """Write a checkpoint. Raises HpctripError where it cannot be written; the previous one is then intact."""
        start = time.perf_counter()
        checkpoint = Checkpoint(state, model, self._input_toml, self._metadata)
        self.newest = write(self._results, checkpoint, self.newest)
        self._replaced.discard(self.newest)
        self._saved, self._end = state.round, time.perf_counter()
        self.cost_s = self._end - start
        self.spent_s += self.cost_s
