"""The way out for a key that is unknown where it stands: it is one of another table or of another kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpctrip.base.component import Component, named_tables, registry_of
from hpctrip.base.reference import component_of
from hpctrip.base.text import closest, unknown_name

Path = tuple[str, ...]
_NAME = "NAME"
"""Stands for the name of a table that the user chooses."""


def where_it_belongs(root: type[Component], path: Path, known: Iterable[str]) -> str:
    """What was meant by the key at `path`, which is not among those `known` in its table."""
    places = list(dict.fromkeys(_places(root)))
    kinds = sorted({kind for place, kind in places if place == _without_names(root, path)})
    if kinds:
        return f"kinds with it: {', '.join(kinds)}; known here: {', '.join(sorted(known))}"
    if elsewhere := _meant(path[-1], places):
        return elsewhere
    if len(path) > 1:
        return unknown_name(path[-1], known)
    near = _meant(closest(path[-1], {place[-1] for place, _ in places}), places)
    return f"{near} known: {', '.join(sorted(known))}".lstrip()


def _meant(name: str, places: Iterable[tuple[Path, str]]) -> str:
    """`"did you mean 'train.lr' or 'server.lr'?"` for the keys of this name; empty where there is none."""
    found = dict.fromkeys(repr(".".join(place)) for place, _ in places if place[-1] == name)
    return f"did you mean {' or '.join(found)}?" if found else ""


def _places(table: type[Component], above: Path = (), kind: str = "") -> Iterator[tuple[Path, str]]:
    """Every key in and below a table, and the kind of the table that has it."""
    for name, field in table.model_fields.items():
        here = (*above, name)
        yield here, kind
        named, inner = named_tables(field), component_of(field)
        registry = named.registry if named else registry_of(field)
        for other in registry or ():
            yield from _places(registry[other], (*here, _NAME) if named else here, other)
        if inner is not None:
            yield from _places(inner, here, kind)


def _without_names(root: type[Component], path: Path) -> Path:
    """The path, with _NAME where the user has chosen a name."""
    field = root.model_fields.get(path[0])
    return (path[0], _NAME, *path[2:]) if field and named_tables(field) else path
