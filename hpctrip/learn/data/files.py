"""Data files read whole, gzipped or not (their first bytes tell, not their name): bytes, text, JSON and IDX.

IDX is the format of MNIST and EMNIST: a magic number, the dimensions, then bytes. The magic number is two zero bytes,
the element type (8: unsigned byte) and the number of dimensions; each dimension is a big-endian 32-bit integer.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import GET_AGAIN, gunzipped, read_file
from hpctrip.base.text import shown

_UNSIGNED_BYTE = 8


def read_bytes(path: Path) -> bytes:
    """The whole file, decompressed where it is gzipped. InputError where it cannot be read or is damaged."""
    return gunzipped(read_file(path), str(path))


def read_text(path: Path) -> str:
    """The whole file as UTF-8 text with "\\n" line ends."""
    try:
        return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"not a UTF-8 text (byte {error.start:,})", GET_AGAIN) from None


def json_object(path: Path, text: str) -> dict[str, Any]:
    """The JSON object that is the text of this file. A name that comes twice in an object is refused: one of its values
    would be lost."""
    try:
        content = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:  # cut short, nested too deep, or no JSON at all
        raise InputError(str(path), f"not valid JSON ({error})", GET_AGAIN) from None
    if not isinstance(content, dict):
        raise InputError(str(path), f"JSON of a {type(content).__name__}, expected an object", GET_AGAIN)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the name {shown(twice)} comes twice")
    return content


def read_idx(path: Path, num_dimensions: int) -> np.ndarray:
    """The array [d1, ..., d_num_dimensions] uint8 in an IDX file, gzipped or not (its first bytes tell, not its name).

    Raises InputError naming the file, what it holds and what it should hold.
    """
    content = read_bytes(path)
    magic = bytes([0, 0, _UNSIGNED_BYTE, num_dimensions])
    if content[:4] != magic:
        raise InputError(
            str(path),
            f"the magic number is 0x{content[:4].hex()}, expected 0x{magic.hex()} "
            f"(unsigned bytes in {num_dimensions} dimension{'s' if num_dimensions > 1 else ''})",
            "is it an IDX file, and are images and labels not swapped?",
        )
    header_bytes = 4 + 4 * num_dimensions
    if len(content) < header_bytes:
        raise InputError(
            str(path), f"the header ends after {len(content)} of {header_bytes} bytes", GET_AGAIN
        )
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", num_dimensions, offset=4))
    size, expected = len(content) - header_bytes, math.prod(shape)
    if size != expected:
        raise InputError(
            str(path),
            f"{size:,} bytes of data, expected {expected:,} for {' x '.join(map(str, shape))}",
            GET_AGAIN,
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [num_samples, rows, columns] and labels [num_samples], both uint8. Raises InputError as `read_idx`."""
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if len(x) != len(y):
        raise InputError(
            str(labels),
            f"{len(y):,} labels, but {images.name} has {len(x):,} images",
            "use the two files of one and the same set",
        )
    return x, y
