"""File format of checkpoints and cached rounds: a header and arrays under one checksum.

Layout, in this order and without gaps:

    8 bytes   magic; the last byte is the version of the layout
    8 bytes   length of the header, little-endian
    header    JSON: the fields of that file type, and [name, dtype, shape] of every array
    arrays    their little-endian bytes, in the header's order
    32 bytes  BLAKE2b of everything before

The checksum is verified before the header is parsed, so that no parser sees damaged data. Nothing is unpickled or
executed.
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
    """The header of a file: its arrays, and in a subclass the fields of that file type."""

    model_config = ConfigDict(strict=True)

    arrays: list[tuple[str, Literal["<f4", "<f8", "<i8"], list[int]]]


H = TypeVar("H", bound=Header)
T = TypeVar("T")


@dataclass(frozen=True)
class Container(Generic[H]):
    """A file type in this format."""

    magic: bytes
    """8 bytes, the last of which is the version of the layout."""
    header: type[H]
    name: str
    """Name of the file type, for messages."""
    hint: str
    """Hint in the message about a file of another type."""

    def pack(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """The bytes of the file; equal contents give equal bytes."""
        values = {
            name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            for name, array in arrays.items()
        }
        shapes = [[name, array.dtype.str, list(array.shape)] for name, array in values.items()]
        header = json.dumps({**fields, "arrays": shapes}).encode()
        parts = [self.magic, struct.pack("<Q", len(header)), header, *(a.data for a in values.values())]
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in parts:
            digest.update(part)
        return b"".join([*parts, digest.digest()])

    def unpack(self, data: bytes, place: str, parse: Callable[[H, dict[str, dict[str, np.ndarray]]], T]) -> T:
        """Verify the bytes of a file and return `parse(header, arrays)`. The arrays are {table: {name: array}} of those
        named "table/name"; the others are in the table "". Raises InputError, naming `place`, where the bytes are
        damaged or of another file type or layout, and where `parse` raises ValueError, LookupError or TypeError."""
        body, stored = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if data[: len(self.magic) - 1] != self.magic[:-1]:
            raise InputError(place, f"is not an hpctrip {self.name}", self.hint)
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
