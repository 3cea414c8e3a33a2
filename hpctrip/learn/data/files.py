"""Reading a data file whole, gzipped or not: its first bytes tell, not its name."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError

FETCH_AGAIN = "copy or fetch the file again"
_GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """The whole file, decompressed where it is gzipped."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except EOFError:
        raise InputError(
            str(path), "the gzip stream ends too early: the file is truncated", FETCH_AGAIN
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), f"the gzip stream is damaged ({error})", FETCH_AGAIN) from None
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read ({error.strerror})", "check the path and permissions"
        ) from None


def read_text(path: Path) -> str:
    """The whole file as UTF-8 text with "\\n" line ends."""
    try:
        return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"not a UTF-8 text (byte {error.start:,})", FETCH_AGAIN) from None


def json_object(path: Path, text: str) -> dict[str, Any]:
    """The JSON object that is the text of this file."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # cut short, or no JSON at all
        raise InputError(str(path), f"not valid JSON ({error})", FETCH_AGAIN) from None
    if not isinstance(content, dict):
        raise InputError(str(path), f"JSON of a {type(content).__name__}, expected an object", FETCH_AGAIN)
    return content


def fingerprints(paths: Iterable[Path]) -> dict[str, list[int]]:
    """Size and modification time (ns) of each file: changed files are other data."""
    return {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
