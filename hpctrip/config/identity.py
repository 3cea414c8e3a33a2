"""Identity of an input: the marks of keys that do not affect results or training, and the hash of all others.

A field is marked by its type, `transport: NotInResult[str] = "auto"`; a table is marked as a whole where it is a field
of the table above it, `checkpoint: NotInResult[Checkpointing]`. Comparisons of inputs (resume, diff, merge, figures)
leave these keys out, and so they do with `Added` ones at their default, which older files lack. A results file lists
both (attribute `neutral_keys`), so that it can be compared without the classes.

A key that does not affect training is marked in the same way, `timing: NotInTraining[Timing]`: runs that differ only in
such keys learn the same wherever they choose the same cohorts. Unmarked keys count: a forgotten mark costs repeated
training, never a wrong number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic.fields import FieldInfo

from hpctrip.base.io import digest
from hpctrip.config.component import Component, walk

_T = TypeVar("_T")
_NEUTRAL = "changes no result"
NotInResult = Annotated[_T, _NEUTRAL]
"""Type of a field that affects no number of a result."""

_NOT_IN_TRAINING = "no training sees it"
NotInTraining = Annotated[_T, _NOT_IN_TRAINING]
"""Type of a field that affects which sites train, when, for how long, or how often models are evaluated, but not the
outcome of training for the sites that are chosen."""

_ADDED = "added later"
Added = Annotated[_T, _ADDED]
"""Type of a field that hpctrip did not have when runs with this `VERSION` of identities were first stored, and whose
default changes no result: it is part of an identity only where it has another value."""

VERSION = 2
"""Version of the recipe of identities. Runs stored under another version are not recognised. 1: only keys that differed
from their defaults were hashed, so that a changed default went unnoticed."""

Flat = Mapping[str, Any]
"""An input as {"policy.k": 10, ...}. A key that is absent and one that is None mean the same: the default."""


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{dotted key: value} of nested tables, in their order."""
    keys: dict[str, Any] = {}
    for key, value in table.items():
        keys |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return keys


def is_neutral(field: FieldInfo) -> bool:
    """Whether a field, or a table as a whole, affects no result."""
    return _NEUTRAL in field.metadata


def is_added(field: FieldInfo) -> bool:
    """Whether a field, or a table as a whole, is left out of identities at its default."""
    return _ADDED in field.metadata


def neutral_keys(component: Component) -> list[str]:
    """The dotted keys and whole tables of an input that affect no result."""
    return _marked(component, {_NEUTRAL})


def keys_not_in_training(component: Component) -> list[str]:
    """The dotted keys and whole tables of an input that do not affect training, `neutral_keys` included."""
    return _marked(component, {_NEUTRAL, _NOT_IN_TRAINING})


def _marked(component: Component, marks: set[str]) -> list[str]:
    """The keys with one of these marks, without those in a table that has one."""
    keys: list[str] = []
    for key, field, _ in walk(component):
        is_marked = any(isinstance(item, str) and item in marks for item in field.metadata)
        if is_marked and not key.startswith(tuple(f"{table}." for table in keys)):
            keys.append(key)
    return keys


def added_keys(component: Component) -> list[str]:
    """The dotted keys and whole tables of an input that are `Added` and have their default value."""
    return [
        key
        for key, field, value in walk(component)
        if is_added(field) and value == field.get_default(call_default_factory=True)
    ]


def uncompared_keys(component: Component) -> list[str]:
    """The dotted keys and tables that comparisons of results files leave out."""
    return [*neutral_keys(component), *added_keys(component)]


def raised_rules(component: Component) -> dict[str, int]:
    """{table: rules} of the components whose `rules` are above 1; the root is called "input"."""
    tables = {"input": component} | {
        key: value for key, _, value in walk(component) if isinstance(value, Component)
    }
    return {key: table.rules for key, table in tables.items() if table.rules > 1}


def without(table: Flat, keys: Iterable[str]) -> dict[str, Any]:
    """The input without these keys and tables."""
    left_out = set(keys)

    def stays(key: str) -> bool:
        parts = key.split(".")
        return not any(".".join(parts[:depth]) in left_out for depth in range(1, len(parts) + 1))

    return {key: value for key, value in table.items() if stays(key)}


def differing(tables: Sequence[Flat]) -> list[str]:
    """The keys whose values differ between the inputs, in the order of their first appearance."""
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]


def identity(table: Flat) -> str:
    """Hash of an input in 32 hexadecimal digits (BLAKE2b), independent of the order of its keys."""
    present = {key: value for key, value in table.items() if value is not None}
    return digest(json.dumps(present, sort_keys=True).encode())
