"""Reads the input of any root component: TOML files merged left to right, `-o` lines on top, validated once, with all
faults in one report."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import ValidationError

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import named_path, read_text
from hpctrip.base.text import closest, shown, unknown_name
from hpctrip.config.component import (
    Component,
    NamedTables,
    Registry,
    is_component,
    owner_of,
    rebuild,
    registered,
)
from hpctrip.config.identity import flat
from hpctrip.config.package_data import shipped_inputs, suggest_scenario
from hpctrip.config.values import Bare, misfit, read_bare, readings, written

Tables = dict[str, Any]
"""Merged TOML: tables, keys and values as the user wrote them."""

KeyPath = tuple[str, ...]
"""Tables and key, as in ("policy", "k")."""
_NAME = "NAME"
"""Stands for the name of a table that the user chooses."""

C = TypeVar("C", bound=Component)


def read_layers(paths: Iterable[str], overrides: Iterable[str]) -> list[Tables]:
    """The tables of every file and, last, of all `-o key=value` lines, to be merged left to right. InputError for a
    file or a line that is no TOML."""
    return [*map(_read_file, paths), _read_overrides(overrides)]


def merge(old: Any, new: Any, owner: Any, default_kind: str = "") -> Any:
    """The table `new` laid over `old`, table by table; any other value replaces the old one. A table that changes its
    `kind` replaces the one below, too: the keys of another kind would not fit it. A `Bare` value becomes what its key
    takes.

    `owner` is that of the place (`owner_of`), for a whole input the class of its root; None: unknown. It gives the
    default kinds at every depth.
    """
    if not isinstance(new, dict):
        return read_bare(new) if isinstance(new, Bare) else new
    old = old if isinstance(old, dict) else {}
    if owner is None or isinstance(owner, Registry):
        below = old.get("kind", default_kind)
        kind = new.get("kind", below)
        if below and kind != below:
            old = {}
        owner = owner.get(kind) if owner and isinstance(kind, str) else None

    def inner(key: str) -> Any:
        if isinstance(owner, NamedTables):  # the key is the user's name for a table
            return merge(old.get(key), new[key], owner.registry, key)
        field = owner.model_fields.get(key) if owner else None
        inside = field and owner_of(field)
        if isinstance(new[key], Bare) and not inside:
            return str(new[key]) if key == "kind" else read_bare(new[key], owner, key)
        return merge(old.get(key), new[key], inside, inside.default if isinstance(inside, Registry) else "")

    return {**old, **{key: inner(key) for key in new}}


def dropped(layers: Iterable[Tables], merged: Tables, component: Component) -> list[str]:
    """A line for each value of the layers that was lost when a later layer changed the kind of its table, where the new
    kind has the key, too, with another value; `component` is that of the tables `merged` of them."""
    stated = {key: value for layer in layers for key, value in flat(layer).items()}
    if not (gone := stated.keys() - flat(merged).keys()):
        return []
    present = flat(resolved(component))
    return [
        f"{key} = {shown(stated[key])} was given for another kind of its table and is ignored: the value is now "
        f"{'not set' if present[key] is None else shown(present[key])}; give it beside the new kind"
        for key in sorted(gone)
        if present.get(key, stated[key]) != stated[key]
    ]


def deep(below: Tables, above: Tables) -> Tables:
    """Deep merge of two tables without regard to kinds, as for `-o` lines, whose order does not matter."""
    both = {
        key: deep(below[key], value)
        for key, value in above.items()
        if isinstance(value, dict) and isinstance(below.get(key), dict)
    }
    return {**below, **above, **both}


def validate(tables: Tables, root: type[C]) -> C:
    """The component that the tables describe. Raises InputError with all faults."""
    # a plug-in may have added a component since the last time; rebuilding takes some 50 ms, too long for each run of a
    # large study
    if _built_with.get(root) != (classes := registered()):
        rebuild(root)
        _built_with[root] = classes
    try:
        return root.model_validate(tables)
    except ValidationError as error:
        if command := other_command(tables, root):
            raise InputError("the input", "is that of another command", f"hpctrip {command} FILE") from None
        raise InputError(faults=_one_per_place(_fault(root, detail) for detail in error.errors())) from None


_TABLES = {
    "study": {"axis", "common", "studies"},
    "cluster": {"cluster", "jobs", "scheduler"},
    "run": {"policy", "train", "workload"},
}
"""{command: some tables that only its input has}."""


def other_command(tables: Tables, root: type[Component]) -> str:
    """The command whose input this is; empty if it is that of `root`, or cannot be told."""
    command, own = max(_TABLES.items(), key=lambda item: len(item[1] & tables.keys()))
    return "" if own <= root.model_fields.keys() or not own & tables.keys() else command


_built_with: dict[type[Component], list[tuple[type[Component], ...]]] = {}
"""{class of a root: the registered classes of its last rebuild}. It tells what pydantic's schema of the class holds,
which is global, too."""


def resolved(component: Component) -> Tables:
    """Every field of a component as plain values, `kind` included. The default kind of a table that had no kinds before
    (`Registry.added`) is left out, so that its inputs equal those recorded before."""
    tables = {"kind": component.kind} if component.kind else {}
    for name, field in type(component).model_fields.items():
        tables[name] = _plain(getattr(component, name))
        owner = owner_of(field)
        if isinstance(owner, Registry) and owner.added and tables[name]["kind"] == owner.default:
            del tables[name]["kind"]
    return tables


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return resolved(value) if isinstance(value, Component) else value


def resolved_toml(component: Component) -> str:
    """Every key of a component with its value, as TOML without the keys that are None: TOML has no null."""
    return tomli_w.dumps(_without_none(resolved(component)))


def _without_none(table: Tables) -> Tables:
    present = {key: value for key, value in table.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, dict) else value for key, value in present.items()}


def known_keys(owner: Any) -> list[str]:
    """The input keys of a component class."""
    keys = list(owner.model_fields)
    return ["kind", *keys] if owner.kind and "kind" not in keys else keys


def folder_of(path: str) -> str:
    """The folder of an input file, or of the input of the package that has this name."""
    own = None if named_path(path, str(path)).exists() else shipped_inputs().get(str(path))
    return os.path.dirname(str(own or path))


def _read_file(path: str) -> Tables:
    """The tables of a file, or of the input of the package that has this name."""
    named = named_path(path, str(path))
    if named.exists():
        text = read_text(named, str(path)).removeprefix("\ufeff")  # the byte order mark of some editors
    elif own := shipped_inputs().get(str(path)):
        text = own.read_text(encoding="utf-8")
    else:
        raise InputError(path, "no such file", suggest_scenario(path))
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not valid TOML: {error}") from None


def _read_overrides(lines: Iterable[str]) -> Tables:
    """All `-o key=value` lines as one layer."""
    tables: Tables = {}
    for line in lines:
        key, equals, text = line.partition("=")
        try:
            (place,) = flat(tomllib.loads(f"{key}=0")) if equals else ()
            tables = deep(tables, nested(place, written(text)))
        except (ValueError, RecursionError):
            raise InputError(f"-o {line}", "not of the form key=value", "e.g. -o policy.k=50") from None
    return tables


def nested(key: str, value: Any) -> Tables:
    """The tables that a dotted key and its value make."""
    *outer, last = key.split(".")
    table: Tables = {last: value}
    return reduce(lambda inner, part: {part: inner}, reversed(outer), table)


def _one_per_place(faults: Iterable[Fault]) -> list[Fault]:
    """Join the faults of one place: pydantic reports a value that fits no member of a union once per member."""
    places: dict[str, Fault] = {}
    for fault in faults:
        if first := places.get(fault.place):
            fault = replace(first, problem=f"{first.problem}, or {fault.problem}")
        places[fault.place] = fault
    return list(places.values())


def _fault(root: type[Component], detail: Any) -> Fault:
    """Translate a pydantic error into place, problem and way out."""
    path, owner, holder = _locate(root, detail["loc"])
    place, value = ".".join(path), detail.get("input")
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Fault(place, "unknown key", suggest(root, tuple(path), known_keys(owner)))
    if kind == "union_tag_invalid":
        assert isinstance(owner, Registry)
        tag = detail["ctx"]["tag"]
        known = f"{unknown_name(tag, owner)}; one of your own: {owner.own}"
        hint = _several(f"{place}.kind", tag) or known
        return Fault(f"{place}.kind = {shown(tag)}", f"unknown {owner.sort}", hint)
    if kind in ("union_tag_not_found", "model_type", "dict_type"):
        hint = f'e.g. [{place}] on a line of its own, then "key = value" lines'
        if isinstance(owner, Registry) and isinstance(value, str):
            kind = f"{place}.kind = {inline_toml(value, place)}, or -o {place}.kind={value}"
            hint = _several(place, value) or f"write {kind}"
        return Fault(f"{place} = {shown(value)}", "must be a table", hint)
    problem = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if kind == "missing":
        problem = "is missing"
    elif kind in ("too_short", "string_too_short"):
        least = detail["ctx"]["min_length"]
        problem = "must not be empty" if least == 1 else f"must have at least {least}"
    percent = isinstance(value, str) and re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*%\s*", value)
    hint = f"write a fraction: {float(percent[1]) / 100:g}" if percent else ""
    if kind == "missing" and len(path) == 2:
        hint = f"write {path[1]} = ... below [{path[0]}], or -o {place}=..."
    elif kind == "less_than_equal" and detail["ctx"]["le"] == 1 and 1 < value <= 100:
        hint = f"for {value:g} % write {value / 100:g}"
    elif not hint and holder and isinstance(value, str | int | float | date):
        text = value if isinstance(value, str) else inline_toml(value, place)
        meant = (one for one in readings(text if len(text) < 100 else "") if type(one) is not type(value))
        fits = (f"write {inline_toml(one, place)}" for one in meant if not misfit(one, holder, path[-1]))
        hint = next(fits, _several(place, value))
    return Fault(place if isinstance(value, dict) else f"{place} = {shown(value)}", problem, hint)


def _several(key: str, value: object) -> str:
    """A hint where a value looks like several; else empty."""
    is_list = isinstance(value, str) and ("," in value or ".." in value)
    return f"for several values: --sweep {key}={value}" if is_list else ""


def _locate(
    root: type[Component], loc: tuple[int | str, ...]
) -> tuple[list[str], Any, type[Component] | None]:
    """The path as the user wrote it, without the union tags that pydantic adds, the class or registry there, and the
    class that has its last part as a key, if any."""
    owner: Any = root
    holder: type[Component] | None = None
    path: list[str] = []
    for part in loc:
        if part == "[key]":  # pydantic's word for: the name itself is wrong
            break
        if isinstance(owner, Registry):  # this part is the tag
            owner = owner[str(part)]
        elif isinstance(owner, NamedTables):  # this part is the user's name for a table
            path.append(str(part))
            holder, owner = None, owner.registry
        elif is_component(owner):
            path.append(str(part))
            field = owner.model_fields.get(str(part))
            if field is None:
                break
            holder, inside = owner, owner_of(field)
            owner = field.annotation if inside is None else inside
        elif isinstance(
            part, int
        ):  # an element of a list; anything else is pydantic's name for a union member
            path.append(str(part))
            holder, owner = None, _element(owner)
    return path, owner, holder


def _element(annotation: Any) -> Any:
    """The component class X of the elements of `list[X]`, also of `list[X] | None`; else the annotation."""
    if is_component(annotation):
        return annotation
    return next(filter(is_component, map(_element, get_args(annotation))), annotation)


def suggest(root: type[Component], path: KeyPath, keys: Iterable[str]) -> str:
    """A hint for an unknown key: the tables or kinds that have it, or the nearest of the `keys` of its table."""
    places = list(dict.fromkeys(_places(root)))
    kinds = sorted({kind for place, kind in places if place == _without_names(root, path)})
    if kinds:
        return f"kinds with it: {', '.join(kinds)}; known here: {', '.join(sorted(keys))}"
    if elsewhere := _meant(path[-1], places):
        return elsewhere
    if len(path) > 1:
        return unknown_name(path[-1], keys)
    near = _meant(closest(path[-1], {place[-1] for place, _ in places}), places)
    return f"{near} known: {', '.join(sorted(keys))}".lstrip()


def keys_called(name: str, root: type[Component]) -> list[str]:
    """The dotted input keys that are called `name`, or end so; for a table of a kind, the key of this."""
    tables = {key: owner for key, field in root.model_fields.items() if (owner := owner_of(field))}
    keys = [key for key in _called(name, _places(root)) if isinstance(tables.get(key), Registry | None)]
    return [f"{key}.kind" if key in tables else key for key in keys]


def _meant(name: str, places: Iterable[tuple[KeyPath, str]]) -> str:
    """`"did you mean 'train.lr' or 'server.lr'?"` for the keys of this name; empty where there is none."""
    keys = _called(name, places)
    return f"did you mean {' or '.join(map(repr, keys))}?" if keys else ""


def _called(name: str, places: Iterable[tuple[KeyPath, str]]) -> list[str]:
    keys = dict.fromkeys(".".join(place) for place, _ in places)
    return [key for key in keys if f".{key}".endswith(f".{name}")]


def _places(table: type[Component], above: KeyPath = (), kind: str = "") -> Iterator[tuple[KeyPath, str]]:
    """(path of a key, kind of its table) for every key in and below a table."""
    for name, field in table.model_fields.items():
        here = (*above, name)
        yield here, kind
        owner = owner_of(field)
        if isinstance(owner, NamedTables):
            owner, here = owner.registry, (*here, _NAME)
        if isinstance(owner, Registry):
            for other, component in owner.items():
                yield from _places(component, here, other)
        elif owner:
            yield from _places(owner, here, kind)


def _without_names(root: type[Component], path: KeyPath) -> KeyPath:
    """The path, with _NAME in place of a name that the user chose."""
    field = root.model_fields.get(path[0])
    is_named = field is not None and isinstance(owner_of(field), NamedTables)
    return (path[0], _NAME, *path[2:]) if is_named else path


def inline_toml(value: Any, place: str) -> str:
    """A value as TOML text on one line. InputError at `place` for types that TOML lacks."""
    if isinstance(value, Mapping):
        parts = [
            f"{_toml_key(name)} = {inline_toml(part, f'{place}.{name}')}" for name, part in value.items()
        ]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline_toml(part, place) for part in value) + "]"
    value = value.item() if hasattr(value, "item") else value  # numpy's numbers
    value = str(value) if isinstance(value, Path) else value
    try:
        return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")
    except TypeError:
        problem = f"a {type(value).__name__} is not a value of an input"
        raise InputError(place, problem, "give a number, text or list") from None


def _toml_key(name: str) -> str:
    """A TOML key, quoted where necessary."""
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")
