"""Compares two results files: inputs, files read, and tables. It ignores wall times, measured joules, machines and
input keys that change no result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.rows import is_measured
from hpctrip.base.text import printable
from hpctrip.config.identity import differing
from hpctrip.config.sources import MADE_HERE, PLUGINS, changed_sources, read_sources
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile


@dataclass(frozen=True)
class Difference:
    """A difference between two results files. `str` gives one line."""

    where: str
    """ "input", "read" (the files that were read), "sites", "round N", or "run": the run as a whole."""
    what: str
    """The input key, column or quantity that differs."""
    a: Any
    """Its value in the first file; None: absent."""
    b: Any
    """Its value in the second file; None: absent."""
    row: str = ""
    """For a column, the site or cohort size, as "site 3 (Oslo)"."""

    def __str__(self) -> str:
        place = "" if self.where == "run" else f"{self.where}: "
        values = " | ".join(printable(self._shown(value), 200) for value in (self.a, self.b))
        what = printable(f"{self.what}{self.row and f' of {self.row}'}", 200)  # a key may hold anything
        return f"{place}{what}: {values}"

    def _shown(self, value: Any) -> str:
        if value is None:
            return "absent"
        if self.where == "read":
            return " ".join(value)
        return repr(value) if self.where == "input" else str(value)


def diff(a: ResultsFile, b: ResultsFile) -> list[Difference]:
    """Compare two results files of the same kind; an empty list means that they are equal. For runs, only the first
    round that differs is reported.

    Numbers are compared bit by bit. Raises InputError where the files are of different kinds.
    """
    if a.format != b.format:
        problem = "one is a cluster's, the other a federated run's"
        raise InputError(f"{a.path}, {b.path}", problem, "name two of a kind")
    left, right = a.settings, b.settings
    settings = [Difference("input", key, left.get(key), right.get(key)) for key in differing([left, right])]
    return [*settings, *_sources(a, b, bool(settings)), *differences(a, b)]


def _sources(a: ResultsFile, b: ResultsFile, other_input: bool) -> Iterator[Difference]:
    """Files named under the same key in both inputs whose contents differ. Generated data follow from the input, so
    they are compared only if the inputs are equal."""
    if "sources" in (*a.added, *b.added):
        return
    left, right = (read_sources(run.meta["sources"]) for run in (a, b))
    pairs = [([before], [after]) for before, after in changed_sources(left, right)]
    plugins = [[source for source in sources if source.key == PLUGINS] for sources in (left, right)]
    if {source.digest for source in plugins[0]} != {source.digest for source in plugins[1]}:
        pairs.append((plugins[0], plugins[1]))
    for before, after in pairs:
        made_here = any(source.path == MADE_HERE for source in (*before, *after))
        if not (made_here and other_input):
            shown = (
                [f"{source.path!r} {source.digest}" for source in each] or None for each in (before, after)
            )
            yield Difference("read", (before or after)[0].key, *shown)


@singledispatch
def differences(a: Run, b: Run) -> Iterator[Difference]:
    """The differences between the tables of two files; other classes of results files register their own function."""
    yield from changes("sites", a.sites, b.sites, "site", named=a.site_name)
    yield from _first_round(a, b)
    if len(a.rounds) != len(b.rounds):
        yield Difference("run", "rounds", len(a.rounds), len(b.rounds))
    for name in ("status", "params_digest"):
        if a.meta.get(name) != b.meta.get(name):
            yield Difference("run", name, a.meta.get(name), b.meta.get(name))


def _first_round(a: Run, b: Run) -> Iterator[Difference]:
    """The differences in the first round that has any."""
    keys = {"rounds": "", "rounds_sites": "site", "candidates": "k"}
    rows = {name: [_by_round(run.tables[name]) for run in (a, b)] for name in keys}
    for number in range(1, min(len(a.rounds), len(b.rounds)) + 1):
        where, differences = f"round {number}", []
        for name, key in keys.items():
            left, right = (rows_of(number) for rows_of in rows[name])
            sites = [frame["site"].tolist() for frame in (left, right) if name == "rounds_sites"]
            if sites and sites[0] != sites[1]:
                differences.append(Difference(where, "cohort", *sites))
            else:
                named = a.site_name if key == "site" else None
                differences += changes(name, left, right, key, where, named)
        if differences:
            yield from differences
            return


def _by_round(frame: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """A function from the number of a round to its rows, in their order."""
    rows = frame.groupby("round").indices
    return lambda number: frame.iloc[rows.get(number, [])]


def changes(
    table: str,
    left: pd.DataFrame,
    right: pd.DataFrame,
    key: str = "",
    where: str = "",
    named: Callable[[int], str] | None = None,
) -> Iterator[Difference]:
    """The first difference in each column of a table that both files have, or its lengths where these differ. `key` is
    the column that identifies a row, `named` the text of its value, `where` the place if it is not the table as a
    whole."""
    if len(left) != len(right):
        yield Difference(where or "run", table, len(left), len(right))
        return
    unknown = {name for frame in (left, right) for name in frame.attrs.get("added", ())}
    for name in dict.fromkeys([*left, *right]):
        if is_measured(name) or name in unknown:  # an older file does not know it
            continue
        if name not in left or name not in right:
            yield Difference(
                where or table, name, *("a column" if name in frame else None for frame in (left, right))
            )
            continue
        x, y = left[name].to_numpy(), right[name].to_numpy()
        unequal = (x != y) & ~(pd.isna(x) & pd.isna(y))
        if unequal.any():
            at = int(np.flatnonzero(unequal)[0])
            of = left[key].iloc[at] if key else ""
            row = named(of) if named else f"{key} {of}".strip()
            yield Difference(where or table, name, x[at], y[at], row)
