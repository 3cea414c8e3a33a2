"""Where two runs part, and in what. Only what a result consists of counts: wall times, machines and the input keys that
change no result do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.base.identity import differing
from hpctrip.record.reader import Run


def diff(a: Run, b: Run) -> list[str]:
    """What differs, one line each, the first round that does and not those that follow from it; empty: equal.

    Numbers are compared bit by bit. Raises InputError where a file lacks columns.
    """
    if faults := a.schema_faults() + b.schema_faults():
        raise InputError(faults=faults)
    return [*_input(a, b), *_sites(a, b), *_first_round(a, b), *_ends(a, b)]


def _input(a: Run, b: Run) -> Iterator[str]:
    left, right = a.settings, b.settings
    for key in differing([left, right]):
        yield f"input: {key}: {left.get(key, 'absent')!r} | {right.get(key, 'absent')!r}"


def _sites(a: Run, b: Run) -> Iterator[str]:
    if len(a.sites) != len(b.sites):
        yield f"sites: {len(a.sites)} | {len(b.sites)}"
        return
    for change in _changes(a.sites, b.sites, "site"):
        yield f"sites: {change}"


def _first_round(a: Run, b: Run) -> Iterator[str]:
    for number in range(1, min(len(a.rounds), len(b.rounds)) + 1):
        parts = {
            name: [frame[frame["round"] == number].reset_index(drop=True) for frame in (left, right)]
            for name, left, right in (
                ("", a.rounds, b.rounds),
                ("site ", a.cohorts, b.cohorts),
                ("candidate ", a.candidates, b.candidates),
            )
        }
        (row, other), (cohort, cohort_), (weighed, weighed_) = parts.values()
        found = list(_changes(row, other))
        if not np.array_equal(cohort["site"], cohort_["site"]):
            found.append(f"cohort: {cohort['site'].tolist()} | {cohort_['site'].tolist()}")
        else:
            found += _changes(cohort, cohort_, "site")
        if len(weighed) != len(weighed_):
            found.append(f"candidates: {len(weighed)} | {len(weighed_)}")
        else:
            found += _changes(weighed, weighed_, "k")
        if found:
            yield from (f"round {number}: {change}" for change in found)
            return


def _changes(left: pd.DataFrame, right: pd.DataFrame, key: str = "") -> Iterator[str]:
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
            yield f"{name}{where}: {x[at]} | {y[at]}"


def _ends(a: Run, b: Run) -> Iterator[str]:
    if len(a.rounds) != len(b.rounds):
        yield f"rounds: {len(a.rounds)} | {len(b.rounds)}"
    for name in ("status", "params_digest"):
        if a.meta.get(name) != b.meta.get(name):
            yield f"{name}: {a.meta.get(name)} | {b.meta.get(name)}"
