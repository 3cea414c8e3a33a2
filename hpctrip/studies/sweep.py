"""Axes from the command line: `--sweep policy.k=10,20,40 --sweep seed=0..9`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.config.inputs import Tables
from hpctrip.studies.file import parse_range


def axes_of(lines: Iterable[str], option: str) -> dict[str, list[Any]]:
    """{key: values} of lines `key=value,value`, which are arguments of `option`. A value is TOML, a text without
    quotes, or a range of whole numbers such as 0..9. Of two lines with the same key, the last counts. Raises
    InputError."""
    axes: dict[str, list[Any]] = {}
    for line in lines:
        try:
            key, values = _axis(line)
        except ValueError as error:
            example = f"e.g. {option} policy.k=10,20 or {option} seed=0..9"
            raise InputError(f"{option} {line}", str(error), example) from None
        axes[key] = values
    return axes


def _axis(line: str) -> tuple[str, list[Any]]:
    """(key, values) of a line. Raises ValueError."""
    key, _, text = map(str.strip, line.partition("="))
    if not key or not text:
        raise ValueError("not of the form key=value,value")
    try:
        values = tomllib.loads(f"values = [{text}]")["values"]
    except ValueError:
        values = [value for part in text.split(",") for value in _values(part.strip())]
    if key == "seed" and not all(type(seed) is int for seed in values):
        raise ValueError("names no seeds")
    return key, values


def _values(part: str) -> list[Any]:
    if not part:
        raise ValueError("has an empty value")
    if ".." in part:
        return parse_range(part)
    try:
        return [tomllib.loads(f"value = {part}")["value"]]
    except ValueError:
        return [part]


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
