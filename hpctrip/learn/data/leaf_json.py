"""LEAF's JSON files (Caldas et al. 2018): {"users": [...], "num_samples": [...], "user_data": {user: {"x", "y"}}}.

LEAF's scripts write them in parts of some users each, into `all_data/`, and, once split, into `train/` and `test/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.base.text import shown

KEYS = ("users", "num_samples", "user_data")
_NOT_LEAFS = "is it a file that LEAF's scripts wrote?"


@dataclass(frozen=True)
class User:
    """One user's samples as they stand in a file."""

    path: Path
    name: str
    x: list[Any]
    y: list[Any]

    def fault(self, problem: str) -> InputError:
        """The error to raise about this user's samples."""
        return InputError(str(self.path), f"user {shown(self.name)}: {problem}", _NOT_LEAFS)


def is_leaf(content: dict[str, Any]) -> bool:
    """Whether a JSON object has any of the keys of LEAF's files."""
    return any(key in content for key in KEYS)


def users(path: Path, content: dict[str, Any]) -> Iterator[User]:
    """The users of a file, whose JSON object is `content`, in its order; each has as many samples as announced.

    Raises InputError that names the file and what is wrong with it.
    """
    types = {"users": list, "num_samples": list, "user_data": dict}
    for key in KEYS:
        if not isinstance(content.get(key), types[key]):
            raise InputError(str(path), f"no {key!r} that is a {types[key].__name__}", _NOT_LEAFS)
    names, counts, data = (content[key] for key in KEYS)
    if len(names) != len(counts):
        raise InputError(str(path), f"{len(names):,} users, but {len(counts):,} num_samples", _NOT_LEAFS)
    seen = set()
    for name, count in zip(names, counts, strict=True):
        samples = data.get(name) if isinstance(name, str) else None
        if not isinstance(samples, dict):
            raise InputError(str(path), f"user {shown(name)} is not in 'user_data'", _NOT_LEAFS)
        x, y = samples.get("x"), samples.get("y")
        user = User(path, name, x, y)
        if name in seen:
            raise user.fault("is listed twice")
        seen.add(name)
        if not isinstance(x, list) or not isinstance(y, list):
            raise user.fault("no lists 'x' and 'y'")
        if type(count) is not int or not len(x) == len(y) == count:
            raise user.fault(f"num_samples is {shown(count)}, but there are {len(x):,} x and {len(y):,} y")
        yield user


def parts(data: Path, suffixes: tuple[str, ...], way_out: str) -> dict[str, list[Path]]:
    """The files of a data set, sorted: under "train" and "test" where it has such folders, else all, under "all".

    `data` is a file, or a folder that holds files, or LEAF's folders `train` and `test`, or `all_data`. Files end in
    one of `suffixes`, or that and `.gz`. `way_out` says how to come by such files where there are none.
    """
    if data.is_file():
        return {"all": [data]}
    if not data.exists():
        raise InputError("workload.data", f"there is no file or folder {data}", way_out)
    train_test = [data / part for part in ("train", "test")]
    if any(folder.is_dir() for folder in train_test):
        return {folder.name: _files(folder, suffixes, way_out) for folder in train_test}
    folder = data / "all_data" if (data / "all_data").is_dir() else data
    return {"all": _files(folder, suffixes, way_out)}


def _files(folder: Path, suffixes: tuple[str, ...], way_out: str) -> list[Path]:
    endings = tuple(f"{suffix}{gz}" for suffix in suffixes for gz in ("", ".gz"))
    try:
        files = sorted(path for path in folder.iterdir() if path.name.endswith(endings) and path.is_file())
    except OSError as error:
        raise InputError(
            str(folder), f"cannot be read ({error.strerror})", "LEAF writes both train/ and test/"
        ) from None
    if not files:
        raise InputError(str(folder), f"no files {', '.join(endings)}", way_out)
    return files
