"""A curve in a few rows of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dots:
    """How several dots make one character."""

    weights: np.ndarray
    """[dot rows, dot columns] of a character: the sum over those that are set is its number."""
    characters: str
    """By that number."""

    def drawn(self, dots: np.ndarray) -> list[str]:
        """One text a row of characters, for dots [rows * dot rows, columns * dot columns] of bool."""
        high, wide = self.weights.shape
        cells = dots.reshape(len(dots) // high, high, -1, wide)
        numbers = np.einsum("rhcw,hw->rc", cells, self.weights)
        return ["".join(self.characters[number] for number in row) for row in numbers]


BRAILLE = Dots(
    np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]]),
    " " + "".join(chr(0x2800 + number) for number in range(1, 256)),
)
"""Two by four dots a character (Unicode's braille patterns)."""
ASCII = Dots(np.array([[1], [2]]), " '.:")
"""One by two dots."""


def curve(
    points: Sequence[tuple[float, float]],
    columns: int,
    rows: int,
    bounds: tuple[float, float],
    line: float | None,
    dots: Dots,
) -> list[str]:
    """`rows` texts of `columns` characters: straight lines from point to point (x, y), of which there is at least one.

    x runs from 0 to the last point's, y from `bounds[0]`, at the bottom, to `bounds[1]`. A dotted line is drawn at y =
    `line`, if that lies within them.
    """
    high, wide = dots.weights.shape
    height, width = rows * high, columns * wide
    x, y = np.array(points, dtype=float).T
    column = x / max(x[-1], 1e-9) * (width - 1)
    drawn = np.zeros((height, width), dtype=bool)
    first = int(np.ceil(column[0]))
    row = _row(np.interp(np.arange(first, width), column, y), bounds, height)
    before = np.concatenate([row[:1], row[:-1]])
    level = np.arange(height)[:, None]
    drawn[:, first:] = (np.minimum(before, row) <= level) & (level <= np.maximum(before, row))
    if line is not None and bounds[0] <= line <= bounds[1]:
        drawn[_row(np.array(line), bounds, height), ::3] = True
    return dots.drawn(drawn)


def _row(y: np.ndarray, bounds: tuple[float, float], height: int) -> np.ndarray:
    """The row of dots, from the top."""
    low, high = bounds
    share = (y - low) / max(high - low, 1e-9)
    return np.rint((1 - share.clip(0, 1)) * (height - 1)).astype(int)
