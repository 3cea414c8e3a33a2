"""Values of the command line, in `-o` lines and axes: what they mean follows from the type of their key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hpctrip.config.component import Component


class Bare(str):
    """A value of the command line as it was written, without quotes or brackets: a text, a number, a boolean or a date,
    as the type of its key says (`read_bare`)."""


def written(text: str) -> Any:
    """The value of `key=text`: a quoted text, a list or a table of TOML, or else `Bare`."""
    value = _toml(text := text.strip())
    return value if isinstance(value, str | list | dict) else Bare(text)


def written_list(text: str) -> list[Any]:
    """The values of `key=text,text`, each as `written`: a comma within quotes or brackets is part of a value."""
    values, part = [], ""
    for piece in text.split(","):
        part = f"{part},{piece}" if part else piece
        if not part.lstrip().startswith(("'", '"', "[", "{")) or _toml(part.strip()) is not None:
            values.append(written(part))
            part = ""
    return [*values, *map(written, part.split(","))] if part else values


def read_bare(text: str, owner: type[Component] | None = None, key: str = "") -> Any:
    """What a value of the command line is for a key of a component class: the first of its readings that the key takes,
    or else the first of its type. Of an unknown key: the value of TOML, or the text."""
    if owner is None or key not in owner.model_fields:
        return str(text) if _toml(text) is None else next(readings(text))
    return min(readings(text), key=lambda value: misfit(value, owner, key))


def misfit(value: Any, owner: type[Component], key: str) -> int:
    """How badly a value fits a key: 0, the key takes it; 1, it is out of bounds; 2, it is of another type or form."""
    try:
        _adapter(owner, key).validate_python(value)
    except ValidationError as error:
        return 1 + all(
            fault["type"].endswith(("_type", "literal_error", "_mismatch")) for fault in error.errors()
        )
    return 0


@cache
def _adapter(owner: type[Component], key: str) -> TypeAdapter[Any]:
    return TypeAdapter(owner.model_fields[key].rebuild_annotation(), config=owner.model_config)


def readings(text: str) -> Iterator[Any]:
    """The meanings of a text without quotes, those of TOML first, the text itself last: 1e3 is also a whole number, .5
    also a number, False also a boolean."""
    if isinstance(value := _toml(text), bool | int | float):
        yield value
    with suppress(ValidationError):
        yield _BOOLEAN.validate_python(str(text))
    with suppress(ArithmeticError, ValueError):
        number = Decimal(text)
        # 1e999999999 is no whole number: writing it out takes for ever
        is_whole = abs(number) < 2**64 and number == number.to_integral_value()
        yield int(number) if is_whole else float(number)
    yield str(text)


_BOOLEAN = TypeAdapter(bool)


def _toml(text: str) -> Any:
    """A value of TOML on one line; None for any other text."""
    with suppress(ValueError):
        table = tomllib.loads(f"value = {text}")
        return table["value"] if len(table) == 1 else None
    return None
