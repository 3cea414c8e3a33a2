"""The resolved input of a results file: JSON from anybody."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

MAX_CHARACTERS = 16 * 2**20
MAX_DEPTH, MAX_KEYS, MAX_KEY = 20, 10_000, 200
"""Levels of tables and lists, keys in all, characters of a key."""
_SINGLE = (str, int, float, bool, type(None))


def resolved_input(text: str) -> dict[str, Any]:
    """The table that the text holds. ValueError or RecursionError where it is none such as `hpctrip run` writes: of
    bounded size and depth, with printable keys and finite numbers."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"its input has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    found, num_keys = json.loads(text), 0
    if not isinstance(found, dict):
        raise ValueError("its input is no table")
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        tables = [value for value in level if isinstance(value, dict)]
        num_keys += sum(map(len, tables))
        for key in itertools.chain.from_iterable(tables):
            if len(key) > MAX_KEY or not key.isprintable():
                raise ValueError(f"its input has the key {key!r}")
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            raise ValueError("its input has a number that is not finite")
        nested = (value.values() if isinstance(value, dict) else value for value in level)
        level = [item for values in nested if not isinstance(values, _SINGLE) for item in values]
    if level or num_keys > MAX_KEYS:
        raise ValueError(f"its input has more than {MAX_KEYS:,} keys or more than {MAX_DEPTH} levels")
    return found
