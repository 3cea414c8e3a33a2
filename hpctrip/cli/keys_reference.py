"""Reference of the input keys, built from the fields, types and docstrings of the component classes.

A section is a class: a table of the input, or one kind of a table that has several.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from hpctrip.base.units import spelled
from hpctrip.config.component import Component, NamedTables, Registry, is_component, owner_of
from hpctrip.config.identity import is_neutral

Schema = dict[str, Any]
"""JSON schema of a field, as pydantic makes it."""


@dataclass(frozen=True)
class Key:
    """Description of one input key. Values are written as in TOML."""

    name: str
    """Dotted name within its table: "k", or "glyphs.noise" for a key of an inner table."""
    facts: str
    """Type, bounds, and whether it must be given if it has no default."""
    default: str
    """Default value; empty: the key has none."""
    dimension: str
    """Dimension of a quantity, one of `units.units()`; empty: a plain value."""
    neutral: bool
    """Whether it affects no result."""
    meaning: str


@dataclass(frozen=True)
class Section:
    """One component class and its keys."""

    table: str
    """Name of the table; empty: the keys above all tables."""
    purpose: str
    """Description of a table that has kinds; else empty."""
    kind: str
    """Kind of the table; empty: it has one only."""
    is_default: bool
    """Whether this is the default kind of the table."""
    about: str
    """The docstring of the class."""
    keys: tuple[Key, ...]

    @property
    def path(self) -> tuple[str, ...]:
        """Table and kind, where there are any."""
        return tuple(filter(None, (self.table, self.kind)))


def sections(root: type[Component]) -> list[Section]:
    """All sections of an input with root class `root`: first the keys above all tables, then every registered kind of
    every table."""
    fields, tables = described_fields(root), []
    for name, field in list(fields.items()):
        owner, defaults = owner_of(field), None
        if isinstance(owner, NamedTables):
            owner = owner.registry
        if isinstance(owner, Registry):
            classes, default, purpose = dict(sorted(owner.items())), owner.default, _meaning(field)
        elif owner is not None:
            classes, default, purpose = {"": owner}, "", ""
            defaults = field.get_default(call_default_factory=True)
        else:
            continue
        del fields[name]
        for kind, cls in classes.items():
            keys = _within(field, keys_of(cls, defaults))
            tables.append(Section(name, purpose, kind, kind == default, about(cls), tuple(keys)))
    return [Section("", "", "", True, about(root), tuple(_keys(fields, None))), *tables]


def _within(table: FieldInfo, keys: Iterable[Key], prefix: str = "") -> Iterator[Key]:
    """The keys of a table; they are neutral if the table as a whole is. `prefix`: "NAME." of a table within another."""
    for key in keys:
        yield replace(key, name=prefix + key.name, neutral=key.neutral or is_neutral(table))


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def select(all_sections: Iterable[Section], name: str) -> list[Section]:
    """Select the sections, with all or some of their keys, that `name` denotes: a table, a kind, a key, or several of
    these joined by dots (policy.k, glyphs.noise). Empty if nothing has this name."""
    candidates, parts = list(all_sections), name.split(".")
    if parts[0] in {section.table for section in candidates}:  # [power] is meant, not timing.power
        candidates = [section for section in candidates if section.table == parts[0]]
    selected = []
    for section in candidates:
        keys = tuple(key for key in section.keys if _in_order(parts, (*section.path, *key.name.split("."))))
        if _in_order(parts, section.path):
            selected.append(section)
        elif keys:
            selected.append(replace(section, keys=keys))
    return selected


def names(all_sections: Iterable[Section]) -> set[str]:
    """The names that `select` accepts: tables, kinds, keys, and TABLE.KEY."""
    accepted = set()
    for section in all_sections:
        accepted |= {*section.path, *(key.name for key in section.keys)}
        accepted |= {f"{section.table}.{key.name}" for key in section.keys if section.table}
    return accepted


def _in_order(parts: Iterable[str], path: Iterable[str]) -> bool:
    """Whether `parts` is a subsequence of `path`."""
    rest = iter(path)
    return all(part in rest for part in parts)


def about(cls: type[Component]) -> str:
    """The docstring of a class, without its indentation; empty where it has none."""
    return inspect.cleandoc(cls.__doc__ or "")


def keys_of(cls: type[Component], default: Component | None = None) -> tuple[Key, ...]:
    """The keys of a class and of its inner tables. `default`: an instance with other defaults than the class."""
    return tuple(_keys(described_fields(cls), default))


def _keys(fields: dict[str, FieldInfo], defaults: Component | None) -> Iterator[Key]:
    for name, field in fields.items():
        own = field.get_default(call_default_factory=True) if defaults is None else getattr(defaults, name)
        owner = owner_of(field)
        if isinstance(owner, Registry):
            yield from _within(field, _keys_by_kind(field, owner), f"{name}.")
        elif is_component(owner):
            yield from _within(field, keys_of(owner, own if isinstance(own, Component) else None), f"{name}.")
        else:
            yield _key(name, field, own)


def _keys_by_kind(field: FieldInfo, registry: Registry) -> Iterator[Key]:
    """The keys of an inner table with kinds: its kind, then every key once, with the kinds that have it."""
    kinds = sorted(registry)
    choices = _alternatives(map(toml_value, kinds))
    yield Key("kind", choices, toml_value(registry.default), "", False, _meaning(field))
    keys: dict[str, dict[str, Key]] = {}
    for kind in kinds:
        for key in keys_of(registry[kind]):
            keys.setdefault(key.name, {})[kind] = key
    for by_kind in keys.values():
        key = by_kind.get(registry.default, next(iter(by_kind.values())))
        others = [f"{other}: {k.default}" for other, k in by_kind.items() if k.default != key.default]
        remark = ", ".join(by_kind) + (f"; default of {', '.join(others)}" if others else "")
        yield replace(key, meaning=f"{key.meaning} ({remark})".strip())


def _key(name: str, field: FieldInfo, default: Any) -> Key:
    schema = TypeAdapter(field.rebuild_annotation()).json_schema()
    parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    dimension = next((part["dimension"] for part in parts if "dimension" in part), "")
    value = "" if field.is_required() or default is None else toml_value(default, dimension)
    absent = "" if value else "must be given" if field.is_required() else "may be absent"
    choices = _alternatives(text for part in parts for text in _choices(part))
    facts = _joined([choices, _joined(map(_bounds, parts)), absent], "; ")
    return Key(name, facts, value, dimension, is_neutral(field), _meaning(field))


def described_fields(cls: type[Component]) -> dict[str, FieldInfo]:
    """The fields of a class by name, with the docstrings below them as descriptions. A field redefined without a
    docstring inherits that of its base class; a class without source code has no descriptions of its own.

    The source is parsed on demand: pydantic's `use_attribute_docstrings` parses it whenever a class is made, which
    dominated the start-up time of this package.
    """
    docstrings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Component):
            docstrings |= _field_docstrings(base)
    fields = {name: copy(field) for name, field in cls.model_fields.items()}
    for name, field in fields.items():
        field.description = docstrings.get(name)
    return fields


@cache
def _field_docstrings(cls: type[Component]) -> Mapping[str, str]:
    """The docstrings below the fields in the body of a class, {field: docstring}."""
    try:
        definition = _classes(inspect.getsource(sys.modules[cls.__module__]))[cls.__qualname__]
    except (OSError, TypeError, SyntaxError, KeyError):
        return {}
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def _classes(source: str) -> Mapping[str, ast.ClassDef]:
    """The classes of a module, {qualified name: definition}. The module is parsed once, not for each of its classes."""
    classes: dict[str, ast.ClassDef] = {}

    def visit(body: Iterable[ast.stmt], prefix: str) -> None:
        for part in body:
            if isinstance(part, ast.ClassDef):
                classes[prefix + part.name] = part
                visit(part.body, f"{prefix}{part.name}.")
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(part.body, f"{prefix}{part.name}.<locals>.")
            else:
                visit(getattr(part, "body", ()), prefix)

    visit(ast.parse(source).body, "")
    return classes


def toml_value(value: Any, dimension: str = "") -> str:
    """A value as TOML text; a quantity gets the unit that makes it shortest."""
    if isinstance(value, float):
        short = f"{value:g}"
        plain = short if float(short) == value else repr(value)
        return f'"{spelled(value, dimension)}"' if dimension and value else plain
    return json.dumps(value, ensure_ascii=False)


_NAMES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}


def _alternatives(texts: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *first, last = texts
    return f"{', '.join(first)} or {last}" if first else last


def _choices(schema: Schema) -> list[str]:
    if "const" in schema:
        return [toml_value(schema["const"])]
    if "enum" in schema:
        return [toml_value(value) for value in schema["enum"]]
    if schema.get("type") == "array":
        return [f"list of {', '.join(_choices(schema.get('items', {})))}"]
    name = _NAMES.get(schema.get("type", ""), "value")
    return [f"{name} of {schema['dimension']}" if "dimension" in schema else name]


_BOUNDS = {  # text: keywords of JSON schema, or pydantic's own where it emits those
    "above {}": ("exclusiveMinimum", "gt"),
    "at least {}": ("minimum", "ge"),
    "below {}": ("exclusiveMaximum", "lt"),
    "at most {}": ("maximum", "le"),
    "length at least {}": ("minLength", "minItems"),
    "length at most {}": ("maxLength", "maxItems"),
    "matching `{}`": ("pattern",),
}


def _bounds(schema: Schema) -> str:
    dimension = schema.get("dimension", "")
    own = []
    for text, words in _BOUNDS.items():
        # two where key and unit type both have one
        if values := [schema[word] for word in words if word in schema]:
            tightest = min(values) if "most" in text or "below" in text else max(values)
            own.append(text.format(_bound(tightest, dimension)))
    inner = _bounds(schema["items"]) if schema.get("type") == "array" else ""
    return _joined([*own, f"each {inner}" if inner else ""])


def _bound(value: Any, dimension: str) -> str:
    if isinstance(value, str):
        return value
    if dimension:
        return spelled(value, dimension)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _joined(texts: Iterable[str], separator: str = ", ") -> str:
    return separator.join(filter(None, texts))
