"""Where two runs part, and in what. Only what a result consists of counts: wall times, machines and the input keys that
change no result do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.base.identity import differing
from hpctrip.base.sources import MADE_HERE, PLUGINS, Source, read_sources
from hpctrip.base.text import printable
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile


def diff(a: Run, b: Run) -> list[str]:
    """What differs, one line each, the first round that does and not those that follow from it; empty: equal.

    Numbers are compared bit by bit. Raises InputError where a file lacks columns.
    """
    if faults := a.schema_faults() + b.schema_faults():
        raise InputError(faults=faults)
    return [*what_was_given(a, b), *_sites(a, b), *_first_round(a, b), *_ends(a, b)]


def what_was_given(a: ResultsFile, b: ResultsFile) -> Iterator[str]:
    """What differs between two inputs and the files that they name, one line each."""
    settings = list(_input(a, b))
    yield from settings
    yield from _sources(a, b, bool(settings))


def _input(a: ResultsFile, b: ResultsFile) -> Iterator[str]:
    left, right = a.settings, b.settings
    for key in differing([left, right]):
        yield f"input: {key}: {both(*(repr(table.get(key, 'absent')) for table in (left, right)))}"


def _sources(a: ResultsFile, b: ResultsFile, other_input: bool) -> Iterator[str]:
    """What was read under the same key with another content. Data that were made here follow from the input, so they
    count only where that is the same."""
    if "sources" in (*a.added, *b.added):
        return
    left, right = (_by_key(run) for run in (a, b))
    for key in dict.fromkeys([*(key for key in left if key in right), PLUGINS]):
        before, after = left.get(key, []), right.get(key, [])
        made_here = any(source.path == MADE_HERE for source in (*before, *after))
        if {s.digest for s in before} != {s.digest for s in after} and not (made_here and other_input):
            yield f"read: {key}: {both(*(' '.join(map(_short, read)) or 'none' for read in (before, after)))}"


def _by_key(run: ResultsFile) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = {}
    for source in read_sources(run.meta["sources"], run.path):
        found.setdefault(source.key, []).append(source)
    return found


def _short(source: Source) -> str:
    return f"{source.path!r} {source.digest}"


def _sites(a: Run, b: Run) -> Iterator[str]:
    if len(a.sites) != len(b.sites):
        yield f"sites: {len(a.sites)} | {len(b.sites)}"
        return
    for change in changes(a.sites, b.sites, "site"):
        yield f"sites: {change}"


def _first_round(a: Run, b: Run) -> Iterator[str]:
    parts = [_by_round(frame) for run in (a, b) for frame in (run.rounds, run.cohorts, run.candidates)]
    for number in range(1, min(len(a.rounds), len(b.rounds)) + 1):
        row, cohort, weighed, other, cohort_, weighed_ = (part(number) for part in parts)
        if len(row) != len(other):
            yield f"round {number}: {len(row)} | {len(other)} rows"
            return
        found = list(changes(row, other))
        if not np.array_equal(cohort["site"], cohort_["site"]):
            found.append(f"cohort: {both(*(str(sites['site'].tolist()) for sites in (cohort, cohort_)))}")
        else:
            found += changes(cohort, cohort_, "site")
        if len(weighed) != len(weighed_):
            found.append(f"candidates: {len(weighed)} | {len(weighed_)}")
        else:
            found += changes(weighed, weighed_, "k")
        if found:
            yield from (f"round {number}: {change}" for change in found)
            return


def _by_round(frame: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """A function from a round's number to its rows, in their order."""
    rows = frame.groupby("round").indices
    return lambda number: frame.iloc[rows.get(number, [])].reset_index(drop=True)


def both(left: object, right: object) -> str:
    """Two values side by side, cut for a screen."""
    return f"{printable(str(left), 200)} | {printable(str(right), 200)}"


def changes(left: pd.DataFrame, right: pd.DataFrame, key: str = "") -> Iterator[str]:
    """One line per column that differs between two frames of equal length, with its first difference."""
    for name in dict.fromkeys([*left, *right]):
        if name.endswith("wall_s") or name == "idle_fraction":
            continue
        if name not in left or name not in right:
            yield f"{name}: only in {'the second' if name in right else 'the first'}"
            continue
        x, y = left[name].to_numpy(), right[name].to_numpy()
        unequal = (x != y) & ~(pd.isna(x) & pd.isna(y))
        if unequal.any():
            at = int(np.flatnonzero(unequal)[0])
            where = f" of {key} {left[key].iloc[at]}" if key else ""
            yield f"{name}{where}: {both(x[at], y[at])}"


def _ends(a: Run, b: Run) -> Iterator[str]:
    if len(a.rounds) != len(b.rounds):
        yield f"rounds: {len(a.rounds)} | {len(b.rounds)}"
    for name in ("status", "params_digest"):
        if a.meta.get(name) != b.meta.get(name):
            yield f"{name}: {both(a.meta.get(name), b.meta.get(name))}"
