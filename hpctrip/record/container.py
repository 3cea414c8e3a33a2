"""The container of checkpoints and stored rounds: a header and arrays under one checksum.

Layout, in this order and without gaps:

    8 bytes   magic; the last byte is the version of the layout
    8 bytes   length of the header, little-endian
    header    JSON: the fields of that sort of file, and [name, dtype, shape] of every array
    arrays    their little-endian bytes, in the header's order
    32 bytes  BLAKE2b of everything before

The checksum is compared before anything else is looked at, so that damage never reaches a parser; nothing is ever
unpickled or executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from hpctrip.base.errors import InputError

_DIGEST_BYTES = 32
_RESTORE = "restore a copy"


class Header(BaseModel):
    """The header of a file: its arrays, and in a subclass the fields of that sort of file."""

    model_config = ConfigDict(strict=True)

    arrays: list[tuple[str, Literal["<f4", "<f8", "<i8"], list[int]]]


H = TypeVar("H", bound=Header)
T = TypeVar("T")


@dataclass(frozen=True)
class Container(Generic[H]):
    """One sort of file."""

    magic: bytes
    """8 bytes, the last of which is the version of the layout."""
    header: type[H]
    name: str
    """The name of this sort of file in messages."""
    instead: str
    """The hint where another file was given."""

    def pack(self, said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """The bytes of the file; equal contents give equal bytes."""
        values = {name: _little(array) for name, array in arrays.items()}
        shapes = [[name, array.dtype.str, list(array.shape)] for name, array in values.items()]
        header = json.dumps({**said, "arrays": shapes}).encode()
        parts = [self.magic, struct.pack("<Q", len(header)), header, *(a.data for a in values.values())]
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in parts:
            digest.update(part)
        return b"".join([*parts, digest.digest()])

    def unpack(self, data: bytes, place: str, parse: Callable[[H, dict[str, dict[str, np.ndarray]]], T]) -> T:
        """Check the file and return what `parse` makes of its header and arrays, {table: {name: array}} of those named
        "table/name" ("" is the table of the others). Raises InputError, naming `place`, for anything that is no such
        file, and where `parse` raises since its parts do not fit each other."""
        body, stored = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if data[: len(self.magic) - 1] != self.magic[:-1]:
            raise InputError(place, f"is not an hpctrip {self.name}", self.instead)
        if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != stored:
            raise InputError(place, f"is damaged ({len(data)} bytes do not match their checksum)", _RESTORE)
        if data[: len(self.magic)] != self.magic:
            writer = re.search(rb'"hpctrip_version": "([\w.+-]+)"', data)
            by = writer[1].decode() if writer else "of unknown version"
            raise InputError(
                place,
                f"has layout {data[7]}, written by hpctrip {by}; this hpctrip reads layout {self.magic[7]}",
                "use the hpctrip that wrote it",
            )
        try:
            return parse(*self._parts(memoryview(body)))
        except (ValueError, LookupError, TypeError) as error:  # pydantic's error is a ValueError
            raise InputError(place, f"is malformed ({' '.join(str(error).split())})", _RESTORE) from error

    def _parts(self, body: memoryview) -> tuple[H, dict[str, dict[str, np.ndarray]]]:
        start = len(self.magic) + 8
        (length,) = struct.unpack("<Q", body[len(self.magic) : start])
        end = start + length
        header = self.header.model_validate_json(bytes(body[start:end]))
        arrays: dict[str, dict[str, np.ndarray]] = {}
        for path, dtype, shape in header.arrays:
            start, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
            table, _, name = path.rpartition("/")
            values = np.frombuffer(body[start:end], dtype=dtype).reshape(shape).copy()
            arrays.setdefault(table, {})[name] = values
        if end != len(body):
            raise ValueError(f"{len(body)} bytes, not {end}")
        return header, arrays


def _little(values: np.ndarray) -> np.ndarray:
    """Contiguous, little-endian."""
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
