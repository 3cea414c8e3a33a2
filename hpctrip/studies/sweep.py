"""Parses lines with several values on the command line: `-o policy.k=10,20,40 -o seed=0..9`.

A line has one value if it is valid TOML, or if its key accepts the value as it stands (a label or a path with a comma).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.config.inputs import Tables
from hpctrip.studies.file import parse_range

_RANGE = re.compile(r"\s*\d+\s*\.\.\s*\d+\s*")
_OPEN, _CLOSE = "[{", "]}"


def split(
    lines: Sequence[str], is_one_value: Callable[[str], bool], axes: Collection[str] = ()
) -> tuple[list[str], dict[str, list[Any]]]:
    """Split lines into (lines with one value, {key: values} of the others). The seed and the keys of `axes` are always
    in the latter. Of two lines with the same key, the last counts. Raises InputError for an invalid range or seed."""
    single: list[str] = []
    several: dict[str, list[Any]] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        key = key.strip()
        if not equals:  # its reader reports the fault
            single.append(line)
        elif key == "seed" or key in axes or (could_be_several(line) and not is_one_value(line)):
            several[key] = [item for part in parts(value) for item in _items(part, line)]
            if key == "seed" and not all(type(seed) is int for seed in several[key]):
                raise InputError(
                    f"-o {line}", "names no seeds", "e.g. -o seed=3, -o seed=3,5 or -o seed=0..9"
                )
            single = [other for other in single if other.partition("=")[0].strip() != key]
        else:
            several.pop(key, None)
            single.append(line)
    return single, several


def could_be_several(line: str) -> bool:
    """Whether a line is not valid TOML and its value has commas or is a range."""
    value = line.partition("=")[2]
    if _is_toml(line):
        return False
    return len(parts(value)) > 1 or bool(_RANGE.fullmatch(value))


def parts(text: str) -> list[str]:
    """Split a text at its commas outside of quotes and brackets."""
    pieces, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        depth += (char in _OPEN) - (char in _CLOSE) if not quote else 0
        if char == "," and not quote and not depth:
            pieces.append("")
        else:
            pieces[-1] += char
    return [piece.strip() for piece in pieces]


def _items(part: str, line: str) -> list[Any]:
    if _RANGE.fullmatch(part):
        try:
            return parse_range(part)
        except ValueError as error:
            raise InputError(f"-o {line}", str(error), "e.g. -o seed=0..9") from None
    if not part:
        raise InputError(f"-o {line}", "has an empty value", "e.g. -o policy.k=10,20")
    return [tomllib.loads(f"value={part}")["value"] if _is_toml(f"value={part}") else part]


def _is_toml(line: str) -> bool:
    try:
        tomllib.loads(line)
    except ValueError:
        return False
    return True


def with_axes(tables: Tables, several: dict[str, list[Any]]) -> Tables:
    """Tables of a study file in which these values replace those of its axes and seeds, or are further axes; they count
    in the small form, too."""
    tables = dict(tables)
    axes = [dict(axis) for axis in tables.get("axis", [])]
    for key, values in several.items():
        own = next((axis for axis in axes if axis.get("key") == key), None)
        if key == "seed":
            tables["seeds"] = values
            tables["small"] = {
                name: value for name, value in tables.get("small", {}).items() if name != "seeds"
            }
        elif own is not None:
            own["values"] = values
            own.pop("small", None)
        else:
            axes.append({"key": key, "values": values})
    return tables | {"axis": axes}
