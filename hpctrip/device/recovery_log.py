"""Recovery notes: the settings that a process has applied to this machine's GPUs, so that a later start can undo them.

A note is a file in a folder of this user on this machine, locked as long as the process lives that holds the settings.
The kernel drops the lock with the process, so a note that can be locked is a leftover. It is written before anything is
set. A note of an earlier start of the machine's kernel is void: the restart has reset the devices.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from hpctrip.device.counters import Unavailable, boot_id
from hpctrip.device.nvml import Gpu

FOLDER = "HPCTRIP_KNOBS"
"""Environment variable with the folder that holds the folder of the notes; it must be local to this machine."""
_USUAL = "/var/tmp"


class AppliedSettings(BaseModel):
    """The settings of one GPU, and its power cap before."""

    cap_mw: int | None = None
    """The power cap that was set; None: none was."""
    cap_before_mw: int | None = None
    clock_mhz: int | None = None
    """The clock that is held; None: none. NVML cannot tell which clock was held before, so it is freed."""

    @property
    def words(self) -> str:
        """Description for users."""
        parts = []
        if self.cap_mw and self.cap_before_mw:
            parts.append(f"power cap {self.cap_mw / 1000:g} W (before: {self.cap_before_mw / 1000:g} W)")
        if self.clock_mhz:
            parts.append(f"clock {self.clock_mhz} MHz")
        return " and ".join(parts)

    def put_back(self, gpu: Gpu) -> None:
        """Undo it; a cap that has been changed since stays. Raises Unavailable."""
        if self.clock_mhz is not None:
            gpu.unlock_clock()
        if self.cap_mw is not None and self.cap_before_mw is not None and gpu.cap_mw == self.cap_mw:
            gpu.set_cap_mw(self.cap_before_mw)


class RecoveryNote(BaseModel):
    """A note, locked by this process: its own, or that of a killed process, whose settings this one undoes."""

    path: Path = Field(exclude=True)
    file: Any = Field(exclude=True)
    """The open binary file, which is locked."""
    boot: str
    """The start of the machine's kernel in which the settings were applied."""
    process: int
    """The run that asked for the settings."""
    gpus: dict[str, AppliedSettings] = {}

    @classmethod
    def create(cls, process: int) -> RecoveryNote:
        """A new note of this process. Raises Unavailable where none can be written."""
        try:
            folder = _folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_others(folder)
            path = folder / f"{process}-{secrets.token_hex(4)}.json"
            file = path.open("xb")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise Unavailable(f"{_folder()}: no note can be kept there: {error.strerror}") from error
        return cls(path=path, file=file, boot=boot_id(), process=process)

    def write(self) -> None:
        """Record the settings before they are applied; on disk when it returns. Raises Unavailable."""
        data = self.model_dump_json().encode()
        try:
            os.pwrite(self.file.fileno(), data, 0)
            os.ftruncate(self.file.fileno(), len(data))
            os.fsync(self.file.fileno())
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from error

    def put_back(self) -> None:
        """Undo the settings and remove the note. Where one cannot be undone, the others are, the note stays, and
        Unavailable is raised."""
        failure = None
        for uuid, applied in self.gpus.items():
            try:
                applied.put_back(Gpu.of(uuid))
            except Unavailable as error:
                failure = error
        if failure:
            raise failure
        self.remove()

    def remove(self) -> None:
        """Remove the note: its settings are undone, or another note has them."""
        with suppress(OSError):
            self.path.unlink()
        self.file.close()

    def __str__(self) -> str:
        applied = ", ".join(f"{uuid}: {settings.words}" for uuid, settings in self.gpus.items())
        return f"{applied}, left by process {self.process}, which was killed"


def leftovers() -> Iterator[RecoveryNote]:
    """The notes of this user whose processes were killed."""
    folder = _folder()
    with suppress(OSError):
        _refuse_others(folder)
        for path in sorted(folder.glob("*.json")):
            if note := _leftover(path):
                yield note


def _leftover(path: Path) -> RecoveryNote | None:
    """The note in a file; None where its process lives, or where it is void, which removes it."""
    with suppress(OSError), ExitStack() as until_read:
        file = until_read.enter_context(os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "rb"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises OSError where its process lives
        with suppress(ValueError):  # killed before it had written, so before it had set anything
            note = RecoveryNote(path=path, file=file, **json.loads(file.read() or b"{}"))
            if note.boot == boot_id():
                until_read.pop_all()
                return note
        path.unlink()
    return None


def _folder() -> Path:
    return Path(os.environ.get(FOLDER) or _USUAL) / f"hpctrip-knobs-{os.geteuid()}"


def _refuse_others(folder: Path) -> None:
    """Raise PermissionError unless the folder is this user's alone: a note decides what root sets."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(0, "it is not a folder of this user alone")
