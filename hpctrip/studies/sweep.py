"""Axes from the command line: `--sweep policy.k=10,20,40 --sweep seed=0..9`."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.config.inputs import Tables
from hpctrip.studies.file import parse_range

EXAMPLE = "e.g. --sweep policy.k=10,20 or --sweep seed=0..9"


def axes_of(sweeps: Sequence[str]) -> dict[str, list[Any]]:
    """{key: values} of lines `key=value,value`. A value is TOML, a text without quotes, or a range of whole numbers
    such as 0..9. Of two lines with the same key, the last counts. Raises InputError."""
    axes: dict[str, list[Any]] = {}
    for line in sweeps:
        key, equals, text = line.partition("=")
        if not equals or not key.strip() or not text.strip():
            raise InputError(f"--sweep {line}", "not of the form key=value,value", EXAMPLE)
        try:
            values = tomllib.loads(f"values = [{text}]")["values"]
        except ValueError:
            values = [value for part in text.split(",") for value in _values(part.strip(), line)]
        if key.strip() == "seed" and not all(type(seed) is int for seed in values):
            raise InputError(f"--sweep {line}", "names no seeds", EXAMPLE)
        axes[key.strip()] = values
    return axes


def _values(part: str, line: str) -> list[Any]:
    if not part:
        raise InputError(f"--sweep {line}", "has an empty value", EXAMPLE)
    if ".." in part:
        try:
            return parse_range(part)
        except ValueError as error:
            raise InputError(f"--sweep {line}", str(error), EXAMPLE) from None
    try:
        return [tomllib.loads(f"value = {part}")["value"]]
    except ValueError:
        return [part]


def without_axes(overrides: Sequence[str], keys: Collection[str]) -> tuple[list[str], list[str]]:
    """(the other lines, lines of these keys) of the lines `key=value` of `-o`."""
    of_axes = [line for line in overrides if line.partition("=")[0].strip() in keys]
    return [line for line in overrides if line not in of_axes], of_axes


def with_axes(tables: Tables, axes: Mapping[str, list[Any]]) -> Tables:
    """Tables of a study file in which these values replace those of its axes and seeds, or are further axes; they count
    in the small form, too."""
    tables = dict(tables)
    all_axes = [dict(axis) for axis in tables.get("axis", [])]
    for key, values in axes.items():
        own = next((axis for axis in all_axes if axis.get("key") == key), None)
        if key == "seed":
            tables["seeds"] = values
            tables["small"] = {
                name: value for name, value in tables.get("small", {}).items() if name != "seeds"
            }
        elif own is not None:
            own["values"] = values
            own.pop("small", None)
        else:
            all_axes.append({"key": key, "values": values})
    return tables | {"axis": all_axes}
