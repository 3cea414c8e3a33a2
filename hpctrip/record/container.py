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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError

_DIGEST_BYTES = 32

Arrays = dict[str, dict[str, np.ndarray]]
"""{table: {name: array}} of the arrays named "table/name"; the others are in the table ""."""


@dataclass(frozen=True)
class Container:
    """A file type in this format."""

    magic: bytes
    """8 bytes, the last of which is the version of the layout."""
    name: str
    """Name of the file type, for messages."""
    hint: str
    """Hint in the message about a file of another type."""

    def pack(
        self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Iterator[bytes | memoryview]:
        """The bytes of the file, in pieces that copy no array; equal contents give equal bytes."""
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
            yield part
        yield digest.digest()

    def unpack(self, data: bytes, place: str) -> tuple[dict[str, Any], Arrays]:
        """The fields of the header, and the arrays. Raises InputError, naming `place`, where the bytes are damaged or
        of another file type or layout."""
        body, stored = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if data[: len(self.magic) - 1] != self.magic[:-1]:
            raise InputError(place, f"is not an hpctrip {self.name}", self.hint)
        if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != stored:
            problem = f"is damaged ({len(data)} bytes do not match their checksum)"
            raise InputError(place, problem, "restore a copy")
        if data[: len(self.magic)] != self.magic:
            writer = re.search(rb'"hpctrip_version": "([\w.+-]+)"', data)
            by = writer[1].decode() if writer else "of unknown version"
            raise InputError(
                place,
                f"has layout {data[7]}, written by hpctrip {by}; this hpctrip reads layout {self.magic[7]}",
                "use the hpctrip that wrote it",
            )
        start = len(self.magic) + 8
        (length,) = struct.unpack("<Q", body[len(self.magic) : start])
        end = start + length
        header = json.loads(body[start:end])
        arrays: Arrays = {}
        for path, dtype, shape in header.pop("arrays"):
            table, _, name = path.rpartition("/")
            values = np.frombuffer(body, dtype, math.prod(shape), end).reshape(shape).copy()
            arrays.setdefault(table, {})[name] = values
            end += values.nbytes
        return header, arrays
