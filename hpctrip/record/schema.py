"""The schema of a results file: its tables and attributes, and the conversion between rows and columns.

The columns of /rounds, /rounds_sites and /candidates are the fields of the row classes in `hpctrip.sim.rounds`; a field
added there is a column here. Rows refer to their round by number, so the three tables join like tables of a database.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hpctrip.base.rows import TEXT, columns
from hpctrip.sim.rounds import Candidates, CohortRound, History, RoundRow, Status


class Column(NamedTuple):
    """One column of a table: its values [rows], their unit ("1": a plain number) and what they are."""

    values: np.ndarray
    unit: str
    doc: str


Table = Mapping[str, Column]

ROW = "row"
"""Column of a stored table without an index of one column: the name of its dimension. Frames have an index instead."""
COUNTS = re.compile(r"\b(samples|sites|rounds|jobs|nodes|GPUs)\b")
"""Counts in units, such as the samples in samples/J; UDUNITS writes 1 for them."""

_ROUND = {"round": columns(RoundRow)["round"]}
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "rounds": columns(RoundRow),
    "rounds_sites": _ROUND | columns(CohortRound),
    "candidates": _ROUND | columns(Candidates),
}
"""{table: {column: {doc, unit, dtype}}} of the tables of rows. The columns of /sites depend on the simulated world."""


class Attribute(NamedTuple):
    """An attribute of the file: its default value, which also defines its type, and its description."""

    default: Any
    doc: str
    is_later: bool = False
    """Whether files of this format version may lack it; a reader then uses the default."""


ATTRIBUTES: dict[str, Attribute] = {
    "status": Attribute("running", "running, finished, failed or interrupted (to be resumed)"),
    "stop_reason": Attribute("", "the rule that ended the run"),
    "scenario": Attribute("", "name of the scenario"),
    "command": Attribute("", "command line"),
    "starts": Attribute(
        [], "every start of the run: the round from which it continued, the time, and the number of ranks"
    ),
    "folder": Attribute("", "working folder of rank 0"),
    "created_utc": Attribute("", "wall time at the start, ISO 8601"),
    "updated_utc": Attribute("", "wall time of this snapshot, ISO 8601"),
    "seed": Attribute(0, "seed of all named streams"),
    "params_digest": Attribute("", "digest of the global model's parameters after the last round"),
    "target_accuracy": Attribute(float("nan"), "held-out accuracy to reach (NaN: none)"),
    "time_to_accuracy_s": Attribute(
        float("nan"), "simulated time at which it was reached (NaN: not reached)"
    ),
    "data_source": Attribute("", "source of the training data"),
    "synthetic_data": Attribute(False, "the training data are synthetic"),
    "synthetic_power": Attribute(False, "the power of the sites is synthetic"),
    "synthetic_signals": Attribute([], "which of carbon and price are synthetic", is_later=True),
    "simulated_start": Attribute(
        [],
        "start of simulated time in each dated series: input table, time, and end of its data",
        is_later=True,
    ),
    "num_ranks": Attribute(1, "number of ranks"),
    "transport": Attribute("", "how ranks exchange vectors"),
    "engine": Attribute("", "how a block of sites is trained"),
    "hosts": Attribute([], "host name of every rank"),
    "rank_phases": Attribute(
        [], "wall seconds of every rank by phase: train, exchange, evaluate, record, idle"
    ),
    "devices": Attribute([], "device name of every rank"),
    "meters": Attribute([], "energy counters of every machine", is_later=True),
    "knobs": Attribute([], "GPU settings applied for the run", is_later=True),
    "refused_knobs": Attribute([], "requested GPU settings that were refused", is_later=True),
    "hpctrip_version": Attribute("", "version of hpctrip"),
    "git_commit": Attribute("", "commit of the source tree (empty: not a git checkout)"),
    "git_dirty": Attribute(False, "tracked files of the source tree differed from the commit"),
    "python_version": Attribute("", "version of Python"),
    "torch_version": Attribute("", "version of torch"),
    "numpy_version": Attribute("", "version of numpy"),
    "h5py_version": Attribute("", "version of h5py"),
    "mpi4py_version": Attribute("", "version of mpi4py"),
    "mpi_library": Attribute("", "name and version of the MPI library (empty: none used)"),
    "slurm_cluster": Attribute("", "name of the Slurm cluster (empty: no job of Slurm)", is_later=True),
    "slurm_job": Attribute("", "number of the Slurm job, of the last start", is_later=True),
    "slurm_step": Attribute("", "number of its step (empty: the batch script itself)", is_later=True),
    "slurm_nodes": Attribute("", "list of the job's nodes, as Slurm writes it", is_later=True),
    "policy": Attribute("", "policy", is_later=True),
    "label": Attribute("", "how figures call the run (empty: by its policy)", is_later=True),
    "num_params": Attribute(0, "number of trained parameters P (0: unknown)", is_later=True),
    "num_buffers": Attribute(0, "number of entries of the model's buffers B", is_later=True),
    "update_bytes": Attribute(
        float("nan"), "size M of an update on the way up of the simulated WAN, compressed", is_later=True
    ),
    "compression": Attribute("none", "update compression", is_later=True),
    "payload_bytes": Attribute(
        float("nan"), "size of the real update: P parameters, compressed, and B buffers", is_later=True
    ),
    "neutral_keys": Attribute(
        ["name", "label", "checkpoint", "interrupt", "watchdog", "ranks.transport", "ranks.device"],
        "input keys and tables that change no result, or are newer and at their default",
        is_later=True,
    ),
    "sources": Attribute(
        [],
        "data read by the run: input key, path (-: made from the input) and BLAKE2b digest; plug-ins included",
        is_later=True,
    ),
    "packages": Attribute(
        [], "installed packages that added components by their entry points: name and version", is_later=True
    ),
    "blocks": Attribute("", "the rule by which the sites of a round are cut into blocks", is_later=True),
    "sites_per_block": Attribute(
        0, "sites in one block of a round that trains all of them (0: unknown)", is_later=True
    ),
    "policy_keys": Attribute([], "input keys and tables that the policy sets (centralized)", is_later=True),
    "learning_key": Attribute(
        "",
        "digest of everything that training depends on except the cohorts: runs with equal digests and cohorts have "
        "equal models and accuracies",
        is_later=True,
    ),
    "stored_rounds": Attribute(
        0,
        "rounds taken from the cache instead of trained (their wall times are 0)",
        is_later=True,
    ),
}
"""The attributes of every results file of a run; a file may have more."""


class Format(NamedTuple):
    """A format of results files: its name and version, its attributes and its tables."""

    name: str
    version: int
    """Raised when an older reader would misread the file; each hpctrip reads one version. A new column or attribute
    does not raise it."""
    attributes: Mapping[str, Attribute]
    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """{table: {column: {doc, unit, dtype}}}, as far as the columns are fixed."""
    docs: Mapping[str, str]
    """{table: its description}."""
    index: Mapping[str, str]
    """{table: its index column}, for tables with an index of one column."""


RUN = Format(
    "hpctrip run",
    version=2,
    attributes=ATTRIBUTES,
    tables=TABLES,
    docs={
        "sites": "one row per site; index: site",
        "rounds": "one row per finished round; index: round",
        "rounds_sites": "one row per site of a round's cohort, in the policy's order; index: round, site",
        "candidates": "one row per cohort size that the policy compared in a round; index: round, k",
    },
    index={"sites": "site", "rounds": "round"},
)


def time_to_accuracy_s(rounds: Iterable[tuple[float, float]], target: float) -> float:
    """Time to accuracy (TTA): simulated seconds until the global model first had the target accuracy; NaN if never.

    `rounds` are (clock_s, accuracy) in order; the accuracy of a round without evaluation is NaN.
    """
    return next((clock_s for clock_s, accuracy in rounds if accuracy >= target), float("nan"))


def tables(history: History) -> dict[str, dict[str, Column]]:
    """The columns of a history: {table: {column: Column}}, in the order of TABLES. Inverse of `history_of`."""
    rows = history.rows
    rounds = {name: [getattr(row, name) for row in rows] for name in TABLES["rounds"]}
    for name, spec in TABLES["rounds"].items():
        if "is_counted" in spec and all(math.isnan(value) for value in rounds[name]):
            del rounds[name]
    cohorts = [(row.round, row.billed) for row in rows]
    candidates = [(row.round, row.candidates) for row in rows if row.candidates is not None]
    return {
        "rounds": to_columns(TABLES["rounds"], rounds),
        "rounds_sites": to_columns(TABLES["rounds_sites"], _joined(cohorts, columns(CohortRound))),
        "candidates": to_columns(TABLES["candidates"], _joined(candidates, columns(Candidates))),
    }


def _joined(parts: list[tuple[int, Any]], names: Iterable[str]) -> dict[str, Any]:
    """The columns of (round, its arrays by attribute), one below the other."""
    joined = {
        name: np.concatenate([getattr(part, name) for _, part in parts]) if parts else [] for name in names
    }
    lengths = [len(getattr(part, next(iter(joined)))) for _, part in parts]
    return {"round": np.repeat([number for number, _ in parts], lengths), **joined}


def to_columns(specs: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a table, described as in TABLES, from their values. Raises TypeError for fractions in an integer
    column."""
    return {
        name: Column(_as(values[name], spec["dtype"]), spec["unit"], spec["doc"])
        for name, spec in specs.items()
        if name in values
    }


def _as(values: Any, dtype: str) -> np.ndarray:
    """The values as texts or little-endian numbers."""
    if dtype == TEXT:
        return np.array(values, dtype=object)
    array = np.asarray(values)
    return array.astype("<" + dtype, casting="same_kind" if array.size else "unsafe")


def history_of(arrays: Mapping[str, Mapping[str, np.ndarray]]) -> History:
    """Rebuild the exact history from {table: {column: [rows]}}. Inverse of `tables`.

    The tables are sorted by round. Columns that are newer than a file have the defaults of the row classes. Raises
    KeyError where another column is missing.
    """
    rounds = {
        name: np.asarray(arrays["rounds"][name]).tolist()
        for name, spec in TABLES["rounds"].items()
        if name in arrays["rounds"] or "default" not in spec
    }
    cohorts = _split(arrays["rounds_sites"], columns(CohortRound), rounds["round"])
    candidates = _split(arrays["candidates"], columns(Candidates), rounds["round"])
    return History(
        tuple(
            _row(dict(zip(rounds, values, strict=True)), cohort, weighed)
            for values, cohort, weighed in zip(
                zip(*rounds.values(), strict=True), cohorts, candidates, strict=True
            )
        )
    )


def _row(row: dict[str, Any], cohort: dict[str, np.ndarray], weighed: dict[str, np.ndarray]) -> RoundRow:
    """The row of a round with its entries in the other tables."""
    billed = CohortRound(**({"start_s": np.float64(row["clock_start_s"])} | cohort))
    is_idle = billed.status == Status.IDLE
    return RoundRow(
        **row,
        cohort=billed.of(~is_idle) if is_idle.any() else billed,
        candidates=Candidates(**weighed) if len(weighed["k"]) else None,
        idle=billed.of(is_idle) if is_idle.any() else None,
    )


def _split(
    arrays: Mapping[str, np.ndarray], names: Mapping[str, Any], rounds: list[int]
) -> list[dict[str, np.ndarray]]:
    """The rows of each of these rounds in a table that is sorted by round; `names` describes its columns."""
    present = [name for name, spec in names.items() if name in arrays or "default" not in spec]
    starts, ends = (np.searchsorted(arrays["round"], rounds, side) for side in ("left", "right"))
    return [
        {name: np.asarray(arrays[name][start:end]) for name in present}
        for start, end in zip(starts, ends, strict=True)
    ]


def row_bytes(num_sites: int, num_candidates: int) -> int:
    """Uncompressed bytes of one round with this many sites in its cohort and cohort sizes considered by the policy."""
    per_site, per_candidate = (len(TABLES[name]) for name in ("rounds_sites", "candidates"))
    return 8 * (len(TABLES["rounds"]) + per_site * num_sites + per_candidate * num_candidates)


def empty_bytes(num_sites: int) -> int:
    """Approximate bytes of a results file without rounds: names, units, descriptions and input (70 kB in a test), and
    the table of sites."""
    return 70_000 + 8 * 10 * num_sites


def table_checksum(columns: Iterable[tuple[str, Column]]) -> str:
    """BLAKE2b digest of the names, units, descriptions and values of a table's columns, in hexadecimal digits.

    It does not depend on the machine: numbers are hashed as little-endian bytes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, (values, unit, doc) in columns:
        values = np.asarray(values)
        if values.dtype.kind in "OUT":
            kind, data = "text", json.dumps(values.tolist()).encode()
        else:
            values = values.astype(values.dtype.newbyteorder("<"))
            kind, data = values.dtype.str, values.tobytes()
        digest.update(json.dumps([name, unit, doc, kind]).encode() + data)
    return digest.hexdigest()


def meta_checksum(meta: Mapping[str, Any], input_toml: str, resolved: Mapping[str, Any]) -> str:
    """BLAKE2b digest of the attributes and the input of a file, in hexadecimal digits."""
    text = json.dumps([meta, input_toml, resolved], sort_keys=True, default=int)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
