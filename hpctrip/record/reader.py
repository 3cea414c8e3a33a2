"""Reads results files into tidy pandas frames. Nothing in a file is unpickled or executed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5s

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import is_pattern, matching, named_path
from hpctrip.base.text import printable
from hpctrip.config.sources import NamedFiles, read_sources, refuse_changed
from hpctrip.record import schema
from hpctrip.record.lock import SUFFIXES
from hpctrip.record.open_checked import TableError
from hpctrip.record.results_file import ResultsFile
from hpctrip.record.schema import Column, Format
from hpctrip.sim.quantities import ACTIVITIES
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import numbered
from hpctrip.sim.traces.files import Flags, read_trace_files, trace_files
from hpctrip.sim.traces.synthetic import synthetic_traces

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Run(ResultsFile):
    """The results of a federated run."""

    sites: pd.DataFrame
    """One row per site, [N]."""
    rounds: pd.DataFrame
    """One row per round, [R]."""
    cohorts: pd.DataFrame
    """One row per site of a round's cohort: the table /rounds_sites."""
    candidates: pd.DataFrame
    """One row per cohort size k that the policy considered in a round."""

    format = schema.RUN
    replayed_by = "hpctrip.runner.replay:replay"

    @classmethod
    def read(cls, path: Path, file: h5py.File, whole: bool = True) -> Self:
        """Read a run from an open file, without the rows of its cohorts and candidates unless it is wanted `whole`.
        Raises as `common_fields` and `read_frame`."""
        frames = {
            name: (read_frame if whole or name in cls.format.index else _headings)(
                file[name], cls.format.tables.get(name, {})
            )
            for name in cls.format.docs
        }
        return cls(
            **common_fields(path, file, cls.format),
            sites=frames["sites"],
            rounds=frames["rounds"],
            cohorts=frames["rounds_sites"],
            candidates=frames["candidates"],
        )

    @property
    def flights(self) -> pd.DataFrame:
        """One row per flight, a site's work from its start until its update arrives or is given up: site, round (in
        which it started), start_s, begin_s (of computing), computed_s, sent_s, end_s, age, weight, status, energy_j.

        Times are simulated seconds since the start of the run; NaN: never, or not known yet. end_s is the end of the
        round that took the update or gave it up (NaN: under way). age, weight and status are those of its last round,
        as in `cohorts`; energy_j is that of all its rounds.
        """
        rows = self.flying.merge(self.rounds[["round", "clock_start_s", "clock_s"]], on="round")
        rows["round"] -= rows["age"]
        rows["energy_j"] = rows[[*ACTIVITIES]].sum(axis=1, skipna=False)
        rows["energy_j"] = rows.groupby(["round", "site"])["energy_j"].transform("sum", min_count=1)
        rows = rows.drop_duplicates(["round", "site"], keep="last").sort_values(["round", "site"])
        rows["start_s"] = rows["start_s"].fillna(rows["clock_start_s"])  # of older files: all start together
        rows["begin_s"] = rows["start_s"] + rows["queue_s"]
        rows["computed_s"] = (rows["begin_s"] + rows["compute_s"]).where(np.isfinite(rows["compute_s"]))
        rows["sent_s"] = (rows["computed_s"] + rows["comm_s"]).where(rows["status"] != Status.LATE)
        rows["end_s"] = rows["clock_s"].where(rows["status"] != Status.UNDER_WAY)
        names = "site round start_s begin_s computed_s sent_s end_s age weight status energy_j"
        return rows[names.split()].reset_index(drop=True)

    @property
    def flying(self) -> pd.DataFrame:
        """The rows of `cohorts` that are of flights, without the sites that were provisioned and idle."""
        return self.cohorts[self.cohorts["status"] != Status.IDLE]

    @property
    def site_names(self) -> list[str]:
        """The names of the sites, [N]; "site 3" for one without."""
        names = self.sites["name"] if "name" in self.sites else [""] * len(self.sites)
        return [name or f"site {site}" for site, name in zip(self.sites["site"], names, strict=True)]

    def site_name(self, site: int) -> str:
        """A site in messages: its number and, where it has one, its name."""
        return numbered(site, self.sites.get("name", ()))

    @property
    def time_to_accuracy_s(self) -> float:
        """Simulated time when the target accuracy was first reached, in seconds; NaN if it was not."""
        return float(self.meta.get("time_to_accuracy_s", "nan"))

    def time_to(self, accuracy: float) -> float:
        """Simulated time when this accuracy, from 0 to 1, was first reached, in seconds; NaN if it was not. Raises
        InputError for another number."""
        if accuracy < 0 or accuracy > 1:
            raise InputError(f"accuracy = {accuracy:g}", "is not from 0 to 1", "write 0.4 for 40 %")
        return schema.time_to_accuracy_s(
            zip(self.rounds["clock_s"], self.rounds["accuracy"], strict=True), accuracy
        )

    def spent(self, accuracy: float) -> tuple[float, bool]:
        """(seconds, True) with the simulated time to this accuracy; (seconds, False) with the time of the whole run if
        it was not reached."""
        reached_s = self.time_to(accuracy)
        reached = math.isfinite(reached_s)
        return (reached_s if reached else float(self.rounds["clock_s"].iloc[-1])), reached

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames by the name of their group in the file."""
        return {
            "sites": self.sites,
            "rounds": self.rounds,
            "rounds_sites": self.cohorts,
            "candidates": self.candidates,
        }

    @property
    def counted(self) -> str:
        """The size of the results in a few words."""
        return f"{len(self.rounds)} rounds, model digest {printable(self.meta['params_digest'], 100)}"

    def structure_faults(self) -> Iterator[Fault]:
        """Faults of the keys by which tables join: rounds must count from 1, and rows must refer, in order, to existing
        rounds and sites. The file must have no `schema_faults`."""
        num_rounds, num_sites = len(self.rounds), len(self.sites)
        if not np.array_equal(self.rounds["round"], np.arange(1, num_rounds + 1)):
            yield Fault(f"{self.path}: /rounds/round", f"does not count from 1 to {num_rounds}")
        if not np.array_equal(self.sites["site"], np.arange(num_sites)):
            yield Fault(f"{self.path}: /sites/site", f"does not count from 0 to {num_sites - 1}")
        for name in ("rounds_sites", "candidates"):
            rounds = self.tables[name]["round"]
            if not rounds.is_monotonic_increasing or not rounds.between(1, num_rounds).all():
                yield Fault(f"{self.path}: /{name}/round", f"does not rise within 1 to {num_rounds}")
        outside = self.cohorts[~self.cohorts["site"].between(0, num_sites - 1)]
        for number, site in zip(outside["round"], outside["site"], strict=True):
            problem = f"its cohort has site {site}; sites are 0 to {num_sites - 1}"
            yield Fault(f"{self.path}: round {number}", problem)

    def history(self) -> History:
        """The rounds exactly as the run recorded them. Raises InputError for missing columns, and for rows that refer
        to missing rounds or sites."""
        if faults := self.schema_faults() or [*self.structure_faults()]:
            raise InputError(faults=faults)
        return schema.history_of(
            {
                name: {c: frame[c].to_numpy() for c in frame if c not in frame.attrs["added"]}
                for name, frame in self.tables.items()
            }
        )


open_run = Run.open


def common_fields(path: Path, file: h5py.File, form: Format) -> dict[str, Any]:
    """The fields of `ResultsFile`, read from an open file. Raises InputError for another format version, and ValueError
    where attributes or input do not match their checksum."""
    meta = {name: _attribute(file.id, name) for name in file.attrs}
    del meta["format"]
    if (stored := meta.pop("format_version")) != form.version:
        writer = meta.get("hpctrip_version") or "of unknown version"
        problem = f"has format version {stored!r}, written by hpctrip {writer}"
        problem += f"; this hpctrip reads version {form.version}"
        raise InputError(str(path), problem, "use the hpctrip that wrote it")
    toml, resolved = file["input/toml"].asstr()[()], json.loads(file["input/json"].asstr()[()])
    if meta.pop("checksum") != schema.meta_checksum(meta, toml, resolved):
        raise ValueError("attributes or input do not match their checksum")
    added = {
        name: attribute.default
        for name, attribute in form.attributes.items()
        if attribute.is_later and name not in meta
    }
    given = {
        name: _as_given(meta[name], attribute.default)
        for name, attribute in form.attributes.items()
        if name in meta
    }
    return {
        "path": path,
        "meta": meta | given | added,
        "added": tuple(added),
        "input_toml": toml,
        "input": resolved,
    }


def _attribute(item: h5d.DatasetID | h5f.FileID | h5g.GroupID, name: str) -> Any:
    """An attribute as str, int, float, bool or list of str."""
    attribute = h5a.open(item, name.encode())
    stored = attribute.get_type()
    value = np.empty(attribute.shape, stored.dtype)
    attribute.read(value, stored)
    if value.ndim:
        return [text.decode() for text in value.tolist()]
    plain = value.item()
    return plain.decode() if isinstance(plain, bytes) else plain


def _as_given(stored: Any, default: Any) -> Any:
    """The attribute that the writer was given, of the type of its `default`: in files, truth is 0 or 1, and an empty
    list is an empty text (older ones have booleans and attributes of length 0)."""
    if isinstance(default, bool):
        return bool(stored)
    return stored or [] if isinstance(default, list) else stored


def _values(dataset: h5d.DatasetID) -> np.ndarray:
    """The values [rows] of a column: numbers in native order, or texts as objects."""
    values = np.empty(dataset.shape, dataset.dtype)
    dataset.read(h5s.ALL, h5s.ALL, values)
    if values.dtype.kind == "S":
        return np.array([text.decode() for text in values.tolist()], object)
    return values.astype(values.dtype.newbyteorder("="))


def stored_columns(group: h5py.Group) -> Iterator[tuple[str, Column]]:
    """The columns of a group by name, read one after another."""
    for name in group:  # not items(), which gives None for unreadable columns
        dataset = h5d.open(group.id, name.encode())  # the objects of h5py take five times as long
        unit, doc = (_attribute(dataset, about) for about in ("unit", "description"))
        yield name, Column(_values(dataset), unit, doc)


class Shared(dict[str, str]):
    """A dictionary of a frame's `attrs` that all its columns and copies share. Pandas copies `attrs` deeply with each
    column that it hands out, which would take longer than most that is done with the column."""

    def __deepcopy__(self, memo: object) -> Shared:
        return self


def read_frame(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Read the columns of a group as a frame, with `attrs` as documented at `ResultsFile`. `expected` describes columns
    as in `Format.tables`. Raises ValueError where the columns do not match the checksum of the group."""
    table = dict(stored_columns(group))
    if schema.table_checksum(table.items()) != _attribute(group.id, "checksum"):
        raise ValueError(f"{group.name} does not match its checksum")
    table.pop(schema.ROW, None)
    frame = pd.DataFrame({name: column.values for name, column in table.items()})
    later = defaults(group, expected)
    for name, value in later.items():
        spec = expected[name]
        default = np.full(len(frame), value, dtype=spec["dtype"])
        table[name] = Column(default, spec["unit"], spec["doc"])
        frame[name] = default
    frame.attrs["units"] = Shared((name, column.unit) for name, column in table.items())
    frame.attrs["descriptions"] = Shared((name, column.doc) for name, column in table.items())
    frame.attrs["added"] = list(later)
    return frame


def _headings(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The frame of `read_frame` without rows, of which there may be millions."""
    frame = pd.DataFrame({name: np.zeros(0) for name in group if name != schema.ROW})
    frame.attrs["added"] = list(defaults(group, expected))
    return frame


def defaults(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """{column: its default} of the columns that are newer than the file of the group."""
    return {
        name: spec["default"] for name, spec in expected.items() if name not in group and "default" in spec
    }


def open_runs(
    patterns: Iterable[str | Path], besides: str | Path = "", opened: Callable[[Path], R] = open_run
) -> list[R]:
    """Read every results file that files, folders (searched recursively) and glob patterns name, each once. The file
    `besides` is skipped, and merged tables are, unless the user names one. `opened` reads one file.

    Raises one InputError with all faults: patterns that match no file, files that cannot be read.
    """
    patterns = list(map(str, patterns))
    paths: dict[Path, bool] = {}  # whether the user names the file itself
    faults: list[Fault] = []
    for pattern in patterns:
        try:
            matches = [path for path in _expand(pattern) if path.absolute() != Path(besides).absolute()]
        except InputError as error:
            faults += error.faults
            continue
        is_named = matches == [named_path(pattern, pattern)]
        paths |= {path: is_named or paths.get(path, False) for path in matches}
        if not matches:
            faults.append(_no_match(pattern))
    if not paths and not faults:
        faults.append(Fault("results", "no file was named", "give files, folders or patterns"))
    runs = []
    for path, is_named in paths.items():
        try:
            runs.append(opened(path))
        except TableError as error:
            faults += error.faults if is_named else []
        except InputError as error:
            faults += error.faults
    if not runs and not faults:
        faults = [Fault(", ".join(patterns), "names merged tables only, no results file")]
    if faults:
        raise InputError(faults=faults)
    return runs


def _no_match(pattern: str) -> Fault:
    """The fault of a pattern that names no results file."""
    if named_path(pattern, pattern).exists() or is_pattern(pattern):
        suffixes = " or ".join(SUFFIXES)
        return Fault(pattern, "names no results file", f"a folder must hold files ending in {suffixes}")
    return Fault(pattern, "no such file", "give the path of a results file, a folder of them or a pattern")


def _expand(pattern: str) -> list[Path]:
    paths = matching(pattern)
    if len(paths) == 1 and paths[0].is_dir():
        return sorted(file for file in paths[0].rglob("*") if file.suffix in SUFFIXES)
    return paths


def read_traces(
    path: str | Path,
    column: str = "production",
    flags: Flags = "true-is-bad",
    synthetic_seed: int = 2019,
    **options: Any,
) -> pd.DataFrame:
    """Power utilisation of every domain in trace files, as a long frame: time_s, cell, domain, utilisation.

    The path "synthetic" means the generated month with the seed `synthetic_seed`. `time_s` counts from the first sample
    and is the start of a sample's interval. `attrs["column"]` is the argument, `attrs["synthetic"]` whether any of the
    traces is synthetic. Other arguments and errors as in `read_trace_files`.
    """
    is_synthetic = path == "synthetic"
    traces = (
        synthetic_traces(synthetic_seed, column)
        if is_synthetic
        else read_trace_files(path, column, flags, **options)
    )
    num_domains, num_steps = traces.value.shape
    frame = pd.DataFrame(
        {
            "time_s": np.tile(np.arange(num_steps) * traces.step_s, num_domains),
            "cell": np.repeat(traces.cells, num_steps),
            "domain": np.repeat(traces.names, num_steps),
            "utilisation": traces.value.ravel(),
        }
    )
    frame.attrs |= {"column": column, "synthetic": traces.synthetic}
    return frame


def refuse_other_traces(path: str, run: Run) -> None:
    """Raise InputError where the trace files that a run's input names have changed since."""
    recorded = read_sources(run.meta["sources"])
    refuse_changed(recorded, [NamedFiles("power.path", path, trace_files).source()], run.path)
