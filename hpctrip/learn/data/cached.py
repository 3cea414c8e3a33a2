"""Prepared data on disk: a folder of .npy files per settings, made once and memory-mapped by every rank."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pooch

from hpctrip.base.errors import InputError
from hpctrip.learn.task import Dataset

PARTS = ("train", "test")


def cache_dir() -> Path:
    """Where prepared data lives: $HPCTRIP_CACHE, or the user's cache folder."""
    return Path(os.environ.get("HPCTRIP_CACHE") or pooch.os_cache("hpctrip"))


def prepared(name: str, settings: dict[str, Any], build: Callable[[], dict[str, np.ndarray]]) -> Path:
    """The folder that holds `build()`, one .npy per array, for these settings (JSON values; all that matters).

    Safe when many processes and jobs ask at once: one builds, under a lock, the others wait. The folder appears whole
    or not at all, so where a file system does not honour locks the work is only done twice. Raises InputError where
    the cache cannot be written, and whatever `build` raises.
    """
    text = json.dumps(settings, indent=1, sort_keys=True)
    folder = cache_dir() / name / hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{folder}.lock"):
            if not folder.is_dir():
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
            str(path), f"prepared data is damaged ({error})", "delete its folder; it is made again"
        ) from None


def datasets(folder: Path, *arrays: str) -> tuple[Dataset, Dataset]:
    """The training and the test data of a prepared folder: its arrays `{part}_{array}`, in the order of Dataset's
    fields."""
    train, test = (Dataset(*(load(folder, f"{part}_{array}") for array in arrays)) for part in PARTS)
    return train, test


def _write(folder: Path, settings: str, arrays: dict[str, np.ndarray]) -> None:
    """Write aside, then rename: the folder exists only when it is complete."""
    aside = folder.with_name(f".{folder.name}-{platform.node()}-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        for name, array in arrays.items():
            np.save(aside / f"{name}.npy", array)
        (aside / "settings.json").write_text(settings)
        try:
            os.replace(aside, folder)
        except OSError:
            if not folder.is_dir():  # else: another process was faster and wrote the same
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
