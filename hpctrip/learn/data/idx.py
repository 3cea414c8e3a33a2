"""IDX, the file format of MNIST and EMNIST: a magic number, the dimensions, then bytes. Plain or gzipped.

The magic number is two zero bytes, the element type (8: unsigned byte) and the number of dimensions; each dimension
is a big-endian 32-bit integer.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import GET_AGAIN
from hpctrip.learn.data.files import read_bytes

_UNSIGNED_BYTE = 8


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
    found, expected = len(content) - header_bytes, math.prod(shape)
    if found != expected:
        raise InputError(
            str(path),
            f"{found:,} bytes of data, expected {expected:,} for {' x '.join(map(str, shape))}",
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
