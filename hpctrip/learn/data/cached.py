"""Prepared data on disk: a folder of .npy files per settings, made once and memory-mapped by every rank.

A manifest in the folder holds the digest of every array, and the state of its file (size, time of change, inode) when
it was last compared with it: a file in that state is not read again, so checking costs a rank a few calls. A folder
whose arrays differ from their digests is made again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.io import digest, named_path, replace_file
from hpctrip.base.process import launched_rank
from hpctrip.config.sources import digest_of_files
from hpctrip.learn.task import Dataset

PARTS = ("train", "test")
_MANIFEST = "manifest.json"
_logger = logging.getLogger(__name__)


def cache_dir() -> Path:
    """The folder to which prepared data are written: `_usual_dir()`, or where the home folder is read-only or cannot
    be, as in some jobs, one of this user in the temporary folder. Raises InputError as `_usual_dir`."""
    usual = _usual_dir()
    if os.environ.get("HPCTRIP_CACHE"):
        return usual
    with suppress(OSError):
        usual.mkdir(parents=True, exist_ok=True)
        if os.access(usual, os.W_OK):
            return usual
    return _temporary_dir(usual)


@functools.cache
def _temporary_dir(usual: Path) -> Path:
    folder = Path(tempfile.gettempdir(), f"hpctrip-{os.getuid()}")
    if launched_rank() == 0:
        text = "%s cannot be written: prepared data go to %s; HPCTRIP_CACHE names a folder that lasts"
        _logger.warning(text, usual, folder)
    return folder


def _usual_dir() -> Path:
    """$HPCTRIP_CACHE, or the user's cache folder. Raises InputError for a user who has neither, as in a container with
    a user id of its own, or where HPCTRIP_CACHE names no folder."""
    if named := os.environ.get("HPCTRIP_CACHE"):
        return named_path(named, "HPCTRIP_CACHE")
    with suppress(RuntimeError):
        if (folder := platformdirs.user_cache_path("hpctrip")).is_absolute():
            return folder
    raise InputError(
        "the cache of prepared data",
        f"the user {os.geteuid()} of this machine has no home folder for it",
        "set HPCTRIP_CACHE to a folder",
    )


def prepared(name: str, settings: dict[str, Any], build: Callable[[], dict[str, np.ndarray]]) -> Path:
    """The folder that holds `build()`, one .npy per array, for these settings (JSON values; all that matters).

    Safe when many processes and jobs ask at once: one builds, under a lock, the others wait. The folder appears whole
    or not at all, so where a file system does not honour locks the work is only done twice. A damaged one is made
    again. Raises InputError where the cache cannot be written, and whatever `build` raises.
    """
    text = json.dumps(settings, indent=1, sort_keys=True)
    digest_of_settings = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    for cache in (_usual_dir(), cache_dir()):
        if _is_sound(folder := cache / name / digest_of_settings):
            return folder
    import filelock  # heavy: it imports asyncio

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{folder}.lock"):
            if not _is_sound(folder):
                if folder.exists():
                    _logger.warning("%s: prepared data is damaged or lacks its digests: made again", folder)
                _write(folder, text, build())
    except OSError as error:
        raise InputError(
            str(folder.parent),
            f"prepared data cannot be written here ({error.strerror or error})",
            "make room there, or set HPCTRIP_CACHE to another folder",
        ) from None
    return folder


def load(folder: Path, name: str) -> np.ndarray:
    """The read-only, memory-mapped array `name` of a prepared folder."""
    path = folder / f"{name}.npy"
    try:
        # A plain ndarray over the map: np.memmap itself makes every small fancy index several times slower.
        return np.load(path, mmap_mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            str(path), f"prepared data is damaged ({error})", "start again: it is made again"
        ) from None


def datasets(folder: Path, *arrays: str) -> tuple[Dataset, Dataset]:
    """The training and the test data of a prepared folder: its arrays `{part}_{array}`, in the order of Dataset's
    fields."""
    train, test = (Dataset(*(load(folder, f"{part}_{array}") for array in arrays)) for part in PARTS)
    return train, test


def digest_of(folder: Path) -> str:
    """The digest of all arrays of a prepared folder, by their names, types, shapes and values."""
    return json.loads((folder / _MANIFEST).read_bytes())["digest"]


def content_of(files: Sequence[Path]) -> str:
    """`digest_of_files`, read anew only where a file's path, size, inode or times have changed."""
    try:
        settings = {str(path.absolute()): _state(path) for path in files}
    except OSError:
        return digest_of_files(files)  # raises InputError
    folder = prepared("digests", settings, lambda: {"digest": np.array([digest_of_files(files)])})
    return str(load(folder, "digest")[0])


def examined(array: np.ndarray) -> tuple[str, int]:
    """(digest of type, shape and values, number of the first row that is not finite or else -1) of an array. One that
    is memory-mapped from a file is read anew only where the file has changed, as for `content_of`."""

    def examine() -> dict[str, np.ndarray]:
        return {"digest": np.array([_digest(array)]), "faulty": np.array([_first_not_finite(array)])}

    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.mode != "r":
        return _digest(array), _first_not_finite(array)
    file, start = Path(str(root.filename)), array.ctypes.data - root.ctypes.data + root.offset
    settings = {str(file): _state(file), "array": [array.dtype.str, array.shape, array.strides, start]}
    folder = prepared("digests", settings, examine)
    return str(load(folder, "digest")[0]), int(load(folder, "faulty")[0])


def _first_not_finite(array: np.ndarray) -> int:
    """Number of the first row with a number that is not finite, or -1. A copy is made of no more than a row."""
    if array.dtype.kind not in "fc" or not array.size or np.isfinite([array.min(), array.max()]).all():
        return -1
    return next(number for number, row in enumerate(array) if not np.isfinite(row).all())


def _is_sound(folder: Path) -> bool:
    """Whether a prepared folder holds the arrays that were written. Only files that changed since their digests were
    last compared are read."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        digests, checked = manifest["arrays"], manifest["checked"]
        changed = [name for name in digests if checked.get(name) != _state(folder / f"{name}.npy")]
        if manifest["digest"] != _joint(digests) or any(
            digests[name] != _digest(load(folder, name)) for name in changed
        ):
            return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError, InputError):
        return False
    if changed:  # a copy of the folder, say
        with suppress(HpctripError):  # a read-only cache is compared every time
            _write_manifest(folder, digests)
    return True


def _write_manifest(folder: Path, digests: dict[str, str]) -> None:
    """Write the arrays' digests {name: digest}, and the state in which their files have these digests."""
    checked = {name: _state(folder / f"{name}.npy") for name in digests}
    manifest = {"digest": _joint(digests), "arrays": digests, "checked": checked}
    replace_file(folder / _MANIFEST, json.dumps(manifest, indent=1).encode(), durable=False)


def _state(path: Path) -> list[int]:
    """Size, inode and times of a file. The time of change, unlike that of modification, cannot be set back."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _digest(array: np.ndarray) -> str:
    """Digest of type, shape and values, not of the .npy header, which versions of numpy may write differently."""
    content = hashlib.blake2b(json.dumps([array.dtype.str, array.shape]).encode(), digest_size=16)
    content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return content.hexdigest()


def _joint(digests: dict[str, str]) -> str:
    """Digest of all arrays of a folder, from their digests {name: digest}."""
    return digest(json.dumps(digests, sort_keys=True).encode())


def _write(folder: Path, settings: str, arrays: dict[str, np.ndarray]) -> None:
    """Write aside, then rename: the folder exists only when it is complete."""
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True
    ) as temporary:
        aside = Path(temporary, "new")
        aside.mkdir()
        for name, array in arrays.items():
            np.save(aside / f"{name}.npy", array)
        (aside / "settings.json").write_text(settings)
        _write_manifest(aside, {name: _digest(np.asarray(array)) for name, array in arrays.items()})
        try:
            os.replace(aside, folder)
        except OSError:
            if not _is_sound(folder):  # else another process was faster and wrote the same
                os.replace(folder, Path(temporary, "damaged"))
                os.replace(aside, folder)
