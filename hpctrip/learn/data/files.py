"""Reading a data file whole, gzipped or not: its first bytes tell, not its name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.base.io import GET_AGAIN, gunzipped, read_file
from hpctrip.base.text import shown


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


def fingerprints(paths: Iterable[Path]) -> dict[str, list[int]]:
    """Size and modification time (ns) of each file: changed files are other data."""
    return {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
