"""Checks what a component hands over, at the one place where it enters: nobody further inside has to doubt it."""

from __future__ import annotations

import numpy as np

from hpctrip.base.errors import InputError


def numbers(
    values: object, shape: tuple[int, ...], low: float, high: float, place: str, what: str
) -> np.ndarray:
    """`values` as float64 of `shape`, all within [low, high]. InputError at `place` (the component's input key) with
    the first that is not."""
    bound = f"it must be {list(shape)} numbers from {low:g} to {high:g}"
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(place, f"gave a {type(values).__name__} as {what}", bound) from None
    if array.shape != shape:
        raise InputError(place, f"gave {what} of shape {list(array.shape)}", bound)
    inside = (array >= low) & (array <= high)  # false for NaN
    if not inside.all():
        first = np.unravel_index(int(np.argmin(inside)), shape)
        index = ", ".join(map(str, first))
        raise InputError(place, f"gave {what} with [{index}] = {array[first]:g}", bound)
    return array
