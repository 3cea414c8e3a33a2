"""Readers of data files, gzipped or not (their first bytes tell, not their name): text, JSON, LEAF's JSON and IDX.

LEAF (Caldas et al. 2018) writes {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}},
in parts of some users each, into the folder `all_data` and, once split, into `train` and `test`. IDX is the format of
MNIST and EMNIST: a magic number, the dimensions, then bytes. The magic number is two zero bytes, the element type (8:
unsigned byte) and the number of dimensions; each dimension is a big-endian 32-bit integer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from hpctrip.base.errors import InputError
from hpctrip.base.io import GET_AGAIN, read_unpacked
from hpctrip.base.text import shown

_NOT_LEAFS = "is it a file that LEAF's scripts wrote?"
_UNSIGNED_BYTE = 8


def in_folder(data: Path, suffixes: tuple[str, ...], hint: str) -> list[Path]:
    """The file itself, or the files of a folder that end in one of `suffixes`, or that and `.gz`, sorted.

    Raises InputError where there are none; `hint` says how to get some.
    """
    if data.is_file():
        return [data]
    if not data.is_dir():
        raise InputError("workload.data", f"there is no file or folder {data}", hint)
    endings = tuple(f"{suffix}{gz}" for suffix in suffixes for gz in ("", ".gz"))
    named = (path for path in data.iterdir() if path.name.endswith(endings) and path.name[0] != ".")
    files = sorted(path for path in named if path.is_file())
    if not files:
        raise InputError("workload.data", f"{data} holds no files {', '.join(endings)}", hint)
    return files


def by_part(data: Path, suffixes: tuple[str, ...], hint: str) -> dict[str, list[Path]]:
    """The files of a data set in LEAF's layout: under "train" and "test" where it has such folders, else all, under
    "all". `data` is a file, a folder of files, or the folder that holds `train` and `test`, or `all_data`."""
    train_test = [data / part for part in ("train", "test")]
    if any(folder.is_dir() for folder in train_test):
        return {folder.name: in_folder(folder, suffixes, hint) for folder in train_test}
    folder = data / "all_data" if (data / "all_data").is_dir() else data
    return {"all": in_folder(folder, suffixes, hint)}


def all_parts(data: str, suffixes: tuple[str, ...], hint: str) -> list[Path]:
    """The files of all parts of the data set at a path that the user wrote."""
    parts = by_part(Path(data).resolve(), suffixes, hint)
    return [file for files in parts.values() for file in files]


def read_text(path: Path) -> str:
    """The whole file as UTF-8 text with "\\n" line ends."""
    try:
        return read_unpacked(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"not a UTF-8 text (byte {error.start:,})", GET_AGAIN) from None


def json_object(path: Path, text: str) -> dict[str, Any]:
    """The JSON object that is the text of this file."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"not valid JSON ({error})", GET_AGAIN) from None
    if not isinstance(content, dict):
        raise InputError(str(path), f"JSON of a {type(content).__name__}, expected an object", GET_AGAIN)
    return content


class LeafUser(BaseModel):
    """The samples of a user, as LEAF writes them."""

    x: list[Any]
    y: list[Any]


class _LeafFile(BaseModel):
    """The content of a file of LEAF's, without `num_samples`, which repeats the lengths."""

    users: list[str]
    user_data: dict[str, LeafUser]


def leaf_fault(path: Path, name: str, problem: str) -> InputError:
    """The error to raise about the samples of a user in a file of LEAF's."""
    return InputError(str(path), f"user {shown(name)}: {problem}", _NOT_LEAFS)


def leaf_users(path: Path, content: dict[str, Any]) -> Iterator[tuple[str, LeafUser]]:
    """The users of a file of LEAF's, whose JSON object is `content`, by name, in its order.

    Raises InputError that names the file and what is wrong with it.
    """
    try:
        file = _LeafFile.model_validate(content)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
        raise InputError(str(path), problem, _NOT_LEAFS) from None
    for number, name in enumerate(file.users):
        if name in file.users[:number]:
            raise leaf_fault(path, name, "is listed twice")
        if name not in file.user_data:
            raise InputError(str(path), f"user {shown(name)} is not in 'user_data'", _NOT_LEAFS)
        user = file.user_data[name]
        if len(user.x) != len(user.y):
            raise leaf_fault(path, name, f"{len(user.x):,} x, but {len(user.y):,} y")
        yield name, user


def read_idx(path: Path, num_dimensions: int) -> np.ndarray:
    """The array [d1, ..., d_num_dimensions] uint8 in an IDX file.

    Raises InputError naming the file, its content and the expected one.
    """
    content = read_unpacked(path)
    magic = bytes([0, 0, _UNSIGNED_BYTE, num_dimensions])
    if content[:4] != magic:
        raise InputError(
            str(path),
            f"the magic number is 0x{content[:4].hex()}, expected 0x{magic.hex()} "
            f"(unsigned bytes in {num_dimensions} dimension{'s' if num_dimensions > 1 else ''})",
            "is it an IDX file, and are images and labels not swapped?",
        )
    try:
        shape = np.frombuffer(content, ">u4", num_dimensions, offset=4).tolist()
        return np.frombuffer(content, np.uint8, offset=4 + 4 * num_dimensions).reshape(shape)
    except ValueError as error:
        raise InputError(str(path), f"not a whole IDX file ({error})", GET_AGAIN) from None
