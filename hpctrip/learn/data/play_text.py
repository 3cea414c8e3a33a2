"""Plays by speaking role, and their windows of 80 characters with the one that follows each.

Roles are read from JSON of the form {"play/ROLE": text}, from LEAF's files, or from plain text in blocks that a role's
name heads:

First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.text import shown
from hpctrip.learn.data import leaf_json
from hpctrip.learn.data.files import json_object, read_text

WINDOW = 80
"""Characters that the model sees before the one that it predicts."""
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 symbols, in its order. Any other character becomes the last one, as in LEAF's labels: its look-up says -1,
which its one-hot rows count from the end."""
TRAIN_FRACTION = 0.8  # of each role's text, as in McMahan et al. 2017

_CODES = np.full(256, len(ALPHABET) - 1, np.uint8)
_CODES[[ord(symbol) for symbol in ALPHABET]] = np.arange(len(ALPHABET))
_HEADING = re.compile(r"([^\n:]{1,60}):[ \t]*(?:\n|$)")


def encode(text: str) -> np.ndarray:
    """[len(text)] uint8: the symbols' places in ALPHABET."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _CODES[np.minimum(code_points, 255)]  # 255 is not in the alphabet


def windows(symbols: np.ndarray) -> np.ndarray:
    """[n, 81] view of a text [n + 80]: every window of 80 symbols and the one after it; n = 0 of a short text."""
    if len(symbols) <= WINDOW:
        return np.empty((0, WINDOW + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(symbols, WINDOW + 1)


def split_by_time(cut: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A role's windows [n, 81], one character apart: the first 80 % to train on, and those after them that share no
    character with any of these to test on; none in a short role."""
    num_train = max(1, int(TRAIN_FRACTION * len(cut)))
    return cut[:num_train], cut[num_train + WINDOW :]


def read_windows(paths: list[Path]) -> dict[str, np.ndarray]:
    """The windows [n, 81] of every role in these files; what several files hold of a role is put together."""
    by_role: dict[str, list[np.ndarray]] = {}
    for path in paths:
        for role, cut in _read(path):
            by_role.setdefault(role, []).append(cut)
    return {role: np.concatenate(cuts) if len(cuts) > 1 else cuts[0] for role, cuts in by_role.items()}


def _read(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Role and windows [n, 81], from a file in any of the three formats: its content tells which."""
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        for role, speech in roles_from_text(path, text).items():
            yield f"{path.stem}/{role}", windows(encode(speech))
        return
    content = json_object(path, text)
    if not leaf_json.is_leaf(content):
        for role, speech in roles_from_json(path, content).items():
            yield role, windows(encode(speech))
        return
    for user in leaf_json.users(path, content):
        for i, (x, y) in enumerate(zip(user.x, user.y, strict=True)):
            if not (isinstance(x, str) and isinstance(y, str) and (len(x), len(y)) == (WINDOW, 1)):
                raise user.fault(
                    f"sample {i:,} is not a text of {WINDOW} characters and the one that follows it"
                )
        together = "".join(x + y for x, y in zip(user.x, user.y, strict=True))
        yield user.name, encode(together).reshape(-1, WINDOW + 1)


def roles_from_json(path: Path, content: dict[str, Any]) -> dict[str, str]:
    """The texts of a by-role JSON object. Raises InputError that names the file and the role that has none."""
    for role, text in content.items():
        if not isinstance(text, str):
            raise InputError(
                str(path),
                f"{shown(role)} holds a {type(text).__name__}, expected a text",
                'a file of roles is {"play/ROLE": text}, one of LEAF has users, num_samples, user_data',
            )
    if not content:
        raise InputError(str(path), "no roles in it", 'a file of roles is {"play/ROLE": text}')
    return content


def roles_from_text(path: Path, text: str) -> dict[str, str]:
    """Each role's speeches, joined by line ends. A block without a heading goes on with the speech before it."""
    speeches: dict[str, list[str]] = {}
    role = None
    for block in re.split(r"\n[ \t]*\n\s*", text.strip()):
        heading = _HEADING.match(block)
        if heading:
            role, block = heading[1].strip(), block[heading.end() :]
        if role is None:
            break
        speeches.setdefault(role, []).append(block)
    if not speeches:
        raise InputError(
            str(path),
            "it does not begin with a speaking role",
            "write each speech as a block: ROLE:, then its lines",
        )
    return {role: "\n".join(filter(None, blocks)) for role, blocks in speeches.items()}
