"""Checks of the values that a component returns, made once where they enter the program.

Every function raises InputError at `place` (see `config.component.config_key`) with the first invalid value; `what`
names the values in the message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard, TypeVar

import numpy as np

from hpctrip.base.errors import InputError

T = TypeVar("T")


def numbers(
    values: object, shape: tuple[int, ...], low: float, high: float, place: str, what: str
) -> np.ndarray:
    """`values` as float64 of `shape`, all within [low, high]."""
    if _is_valid(values, np.float64, shape, low, high):
        return values
    bound = f"it must be {_sort('number', shape)} from {low:g} to {high:g}"
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(place, f"gave a {type(values).__name__} as {what}", bound) from None
    return _within(array, shape, low, high, place, what, bound)


def integers(
    values: object, shape: tuple[int, ...], low: int, high: int, place: str, what: str
) -> np.ndarray:
    """`values` as int64 of `shape`, all within [low, high]; whole numbers of another type are none."""
    if _is_valid(values, np.int64, shape, low, high):
        return values
    bound = f"it must be {_sort('integer', shape)} from {low} to {high}"
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise InputError(place, f"gave a {type(values).__name__} as {what}", bound) from None
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(place, f"gave {what} of type {array.dtype}", bound)
    return _within(array.astype(np.int64, copy=False), shape, low, high, place, what, bound)


def instance(value: object, cls: type[T], place: str, what: str) -> T:
    """`value`, which must be an instance of `cls`."""
    if not isinstance(value, cls):
        raise InputError(place, f"gave a {type(value).__name__} as {what}", f"it must be a {cls.__name__}")
    return value


def columns(values: object, num_sites: int, place: str, what: str) -> Mapping[str, np.ndarray]:
    """`values`, which must be [num_sites] numbers or texts by names that are identifiers."""
    arrays = {str(name): np.asarray(array) for name, array in instance(values, dict, place, what).items()}
    for name, array in arrays.items():
        if not name.isidentifier() or array.shape != (num_sites,) or array.dtype.kind not in "biufU":
            problem = f"describes {name!r} as {array.dtype} {list(array.shape)}"
            raise InputError(place, problem, f"it must be [{num_sites}] numbers or texts by name")
    return arrays


def positive(value: object, place: str, what: str) -> float:
    """`value` as a number above 0, which may be inf."""
    number = float(numbers(value, (), 0.0, math.inf, place, what))
    if number == 0:
        raise InputError(place, f"gave {what} = 0", "it must be above 0")
    return number


def _is_valid(
    values: object, dtype: type, shape: tuple[int, ...], low: float, high: float
) -> TypeGuard[np.ndarray]:
    """Whether `values` need neither conversion nor a message: the usual case, asked several times a round."""
    return (
        isinstance(values, np.ndarray)
        and values.dtype == dtype
        and values.shape == shape
        and bool(low <= values.min(initial=high))  # false for NaN
        and bool(values.max(initial=low) <= high)
    )


def _sort(noun: str, shape: tuple[int, ...]) -> str:
    return f"{list(shape)} {noun}s" if shape else f"one {noun}"


def _within(
    array: np.ndarray, shape: tuple[int, ...], low: float, high: float, place: str, what: str, bound: str
) -> np.ndarray:
    if array.shape != shape:
        raise InputError(place, f"gave {what} of shape {list(array.shape)}", bound)
    inside = (array >= low) & (array <= high)  # false for NaN
    if not inside.all():
        first = np.unravel_index(int(np.argmin(inside)), shape)
        at = f" with [{', '.join(map(str, first))}]" if shape else ""
        raise InputError(place, f"gave {what}{at} = {array[first]:g}", bound)
    return array
