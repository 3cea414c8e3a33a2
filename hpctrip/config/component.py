"""Components and registries: a component's fields are its input keys, its validation and its documentation."""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeGuard

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import core_schema


class Component(BaseModel):
    """A frozen, strict table of the input file. `kind` is its name in the registry that holds it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        defer_build=True,  # together with the class of the input that is read, not one by one
    )
    kind: ClassVar[str] = ""
    rules: ClassVar[int] = 1
    """Version of the meaning of the keys: raise it when the same keys come to give other numbers. Studies then treat
    earlier runs as stale."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the fields in `update`, not validated. Unlike pydantic's it has no values of cached properties,
        which were computed from the fields before."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(copied).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def resolve(self) -> Self:
        """A copy in which every absent key whose default follows from other keys has its value. A key stays absent
        where absence has a meaning (no limit, all, none) and where the machine decides."""
        parts = {name: value.resolve() for name, value in self if isinstance(value, Component)}
        return self.model_copy(update=parts) if parts else self

    def with_defaults(self, **values: Any) -> Self:
        """A copy with `values` for those of these keys that are absent."""
        absent = {name: value for name, value in values.items() if getattr(self, name) is None}
        return self.model_copy(update=absent) if absent else self

    def product_at_most(self, limit: int, *keys: str) -> Self:
        """The component itself, for a validator. Raises ValueError where the product of these keys exceeds `limit`."""
        product = math.prod(getattr(self, key) for key in keys)
        if product > limit:
            raise ValueError(f"{' x '.join(keys)} is {product:,}, the most is {limit:,}")
        return self


def config_key(table: str, component: Component) -> str:
    """The component's place in the input, `table.kind = 'its kind'`, with the file of a plug-in's component."""
    return _place(table, type(component))


@functools.cache
def _place(table: str, cls: type[Component]) -> str:
    key = f"{table}.kind = {cls.kind!r}" if cls.kind else table
    return f"{key} ({file})" if (file := _plugin_file(cls)) else key


def is_own(cls: type[Component]) -> bool:
    """Whether a component class is hpctrip's own, not a plug-in's."""
    return cls.__module__.startswith("hpctrip.")


def _plugin_file(cls: type[Component]) -> str:
    """The file of a plug-in's class; empty for one of hpctrip's own."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file if file and not is_own(cls) else ""


_registries: list[Registry] = []


class Registry(dict[str, type[Component]]):
    """Components of one sort by their kinds. `POLICIES.add` decorates a class that has a `kind`; `field()` is its input
    type."""

    def __init__(
        self,
        sort: str,
        default: str = "",
        required: Callable[..., Any] | None = None,
        added: bool = False,
        own: str = "--plugin FILE.py",
    ):
        """`required` is the method of the base class that every class must define; `added` says that the tables had no
        `kind` when runs were first stored, so that the default is left out of inputs as they are recorded; `own` tells
        users how to have one that is not registered."""
        super().__init__()
        self.own = own
        self.sort, self.default, self.required, self.added = sort, default, required, added
        _registries.append(self)

    def add(self, cls: type[Component]) -> type[Component]:
        """Register a component class under its `kind`.

        A class replaces itself when its module is imported again, as a plug-in is for every input that names it.
        Raises ValueError where `kind` is empty or taken by another class, or the required method is absent.
        """
        if not cls.kind:
            raise ValueError(f"{self.sort} {cls.__name__} has no kind")
        if self.required and getattr(cls, self.required.__name__, None) is self.required:
            raise ValueError(f"{self.sort} {cls.__name__} does not define {self.required.__name__}()")
        holder = self.get(cls.kind, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            taken_by = _plugin_file(holder) or f"{holder.__module__}.{holder.__qualname__}"
            raise ValueError(
                f"{self.sort} {cls.__name__}: kind {cls.kind!r} is already taken by {taken_by}; choose another"
            )
        self[cls.kind] = cls
        return cls

    def field(self) -> Any:
        """The pydantic type of an input table whose `kind` chooses among the registered classes.

        Resolved when the enclosing model is (re)built, so it includes the plug-ins registered before that.
        """
        return Annotated[Any, self]

    def named_fields(self) -> Any:
        """The pydantic type of a table of such tables under names that the user chooses; the name is the default
        `kind`."""
        return Annotated[dict[str, Any], NamedTables(self)]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        def without_kind(table: Any) -> Any:
            return {k: v for k, v in table.items() if k != "kind"} if isinstance(table, dict) else table

        def kind_of(table: Any) -> Any:
            if isinstance(table, dict):
                return table.get("kind", self.default)
            return getattr(table, "kind", None)

        choices = {
            kind: core_schema.no_info_before_validator_function(without_kind, handler.generate_schema(cls))
            for kind, cls in self.items()
        }
        return core_schema.tagged_union_schema(choices, discriminator=kind_of)


@dataclass(frozen=True)
class NamedTables:
    """Schema of a table of tables, under names that the user chooses, whose `kind` chooses a class of the registry."""

    registry: Registry

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        def with_kinds(tables: Any) -> Any:
            if not isinstance(tables, dict):
                return tables
            return {
                name: {"kind": name} | table if isinstance(table, dict) else table
                for name, table in tables.items()
            }

        table = self.registry.__get_pydantic_core_schema__(source, handler)
        names = core_schema.str_schema(pattern=r"^[A-Za-z0-9_-]+$", max_length=100)
        return core_schema.no_info_before_validator_function(
            with_kinds, core_schema.dict_schema(names, table)
        )


def registered() -> list[tuple[type[Component], ...]]:
    """A snapshot of the classes of every registry, to notice when a component is added."""
    return [tuple(registry.values()) for registry in _registries]


def is_component(annotation: Any) -> TypeGuard[type[Component]]:
    """Whether a type is a table of one kind."""
    return isinstance(annotation, type) and issubclass(annotation, Component)


def owner_of(field: FieldInfo) -> Registry | NamedTables | type[Component] | None:
    """The definition of the keys below a field: the registry that a table's `kind` chooses from, named tables of such
    kinds, or the class of a table of one kind; None for a field that is a key."""
    marks = (item for item in field.metadata if isinstance(item, Registry | NamedTables))
    return next(marks, field.annotation if is_component(field.annotation) else None)


def walk(component: Component, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """(dotted key, field, value) of every key and table of a component, a table before its keys. Tables under names of
    the user's choice come with the field that holds them."""
    for name, field in type(component).model_fields.items():
        value, key = getattr(component, name), prefix + name
        yield key, field, value
        named = value if isinstance(value, dict) and isinstance(owner_of(field), NamedTables) else {}
        tables = {key: value} | {f"{key}.{own}": table for own, table in named.items()}
        for place, table in tables.items():
            if isinstance(table, Component):
                yield from walk(table, f"{place}.")


def rebuild(cls: type[Component], around: frozenset[type[Component]] = frozenset()) -> bool:
    """Rebuild the schema of a class whose tables choose among registered classes, the classes within it first, because
    their schemas become parts of it. Classes `around` it are rebuilt by the caller. Returns whether it was rebuilt."""
    around, stale = around | {cls}, False
    for field in cls.model_fields.values():
        owner = owner_of(field)
        registry = owner.registry if isinstance(owner, NamedTables) else owner
        stale |= isinstance(registry, Registry)
        for inner in registry.values() if isinstance(registry, Registry) else filter(None, [registry]):
            if inner not in around:
                stale |= rebuild(inner, around)
    if stale:
        cls.model_rebuild(force=True)
    return stale


def import_all(package: str) -> None:
    """Import every module of this package, so that its components register: a new file is a new component."""
    for module in pkgutil.iter_modules(sys.modules[package].__path__):
        importlib.import_module(f"{package}.{module.name}")
