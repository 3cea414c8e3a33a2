"""Bounds that hold for every value of an input, whatever its key: a component's fields get them by their types.

What is computed from values within these bounds stays computable: products and quotients of several numbers are
finite, integers fit the files' and the libraries' 64 bits, and texts and lists fit a file's attributes and a screen.
A key whose value costs time or memory has closer bounds of its own.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from pydantic_core import core_schema

T = TypeVar("T")

LARGEST = 1e30
"""Largest magnitude of a number; a number that is not 0 is at least 1 / LARGEST."""
LARGEST_INTEGER = 2**63 - 1
LONGEST_TEXT = 4096
"""Characters, as in the longest path of a Linux system."""
LONGEST_LIST = 10_000


def bounded(schema: Any, cls: type) -> Any:
    """The core schema of the component class `cls`, with bounds at every number, text and list among its fields.

    The schemas of other classes inside it are left alone: they have had their turn.
    """
    if isinstance(schema, list):
        return [bounded(part, cls) for part in schema]
    if isinstance(schema, tuple):
        return tuple(bounded(part, cls) for part in schema)
    if not isinstance(schema, dict) or (schema.get("type") == "model" and schema.get("cls") is not cls):
        return schema
    schema = {
        name: part if name in ("default", "metadata", "serialization") else bounded(part, cls)
        for name, part in schema.items()
    }
    kind = schema.get("type")
    if kind == "int":
        above = {} if "lt" in schema else {"le": min(schema.get("le", LARGEST_INTEGER), LARGEST_INTEGER)}
        below = {} if "gt" in schema else {"ge": max(schema.get("ge", -LARGEST_INTEGER), -LARGEST_INTEGER)}
        return schema | above | below
    if kind == "float":
        return core_schema.no_info_after_validator_function(_moderate, schema)
    if kind == "str":
        return core_schema.no_info_after_validator_function(
            _without_nul, {"max_length": LONGEST_TEXT} | schema
        )
    if kind == "list":
        return {"max_length": LONGEST_LIST} | schema
    return schema


def _moderate(value: float) -> float:
    if value and not 1 / LARGEST <= abs(value) <= LARGEST:
        raise ValueError(f"must be 0 or of a magnitude from {1 / LARGEST:g} to {LARGEST:g}")
    return value


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no name and no text may")
    return value


def within(component: T, most: int, *keys: str) -> T:
    """The component, unless the product of these keys, which is what it makes, exceeds `most` (ValueError)."""
    product = math.prod(getattr(component, key) for key in keys)
    if product > most:
        raise ValueError(f"{' x '.join(keys)} is {product:,}, the most is {most:,}")
    return component
