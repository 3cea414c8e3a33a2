"""Where the files are that a received input names: only where the user says so, whatever the input says."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from hpctrip.base.errors import InputError
from hpctrip.base.sources import NamedFiles, is_pattern


def located(names: NamedFiles, data: Sequence[str]) -> str | None:
    """The path, folder or pattern that an input names, among the files and folders `data` that the user named; None
    where it is not there.

    A file was made elsewhere: what counts is how its path ends. `/theirs/traces/cella.csv` is a named file of that last
    name, or `traces/cella.csv` or `cella.csv` in a named folder. The path itself is never looked at. What is found are
    regular files that lie in what was named; a link may not lead out of it.
    """
    for root, path in _candidates(names.value, data):
        try:
            files = names.find(path)
        except InputError:
            continue
        inside = root.resolve()
        if all(file.is_file() and file.resolve().is_relative_to(inside) for file in files):
            return path
    return None


def _candidates(value: str, data: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """(what the user named, where in it the value may be)."""
    parts = [part for part in PurePath(value).parts if part != PurePath(value).anchor]
    if ".." in parts:
        parts = parts[len(parts) - parts[::-1].index("..") :]
    for root in map(Path, data):
        if parts and root.name == parts[-1]:
            yield root, str(root)
        for start in range(len(parts) if root.is_dir() else 0):
            *folders, last = parts[start:]
            if is_pattern(last) and not any(map(is_pattern, folders)) and "**" not in last:
                yield root, str(Path(glob.escape(str(root.joinpath(*folders))), last))
            elif (path := root.joinpath(*folders, last)).exists():
                yield root, str(path)
