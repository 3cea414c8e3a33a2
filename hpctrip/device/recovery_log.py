"""Recovery notes: the settings that a process has applied to a GPU of this machine, so that others can undo them if it
is killed.

The note of a GPU is a file in a folder of this user on this machine. A process locks it for as long as it holds the
settings of that GPU, so one process at a time holds them. The kernel drops the lock with the process: a note that can
be locked and names settings is a leftover. Settings are written to it before they are made. A note of an earlier start
of the machine's kernel is void: the restart has reset the devices.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, Field

from hpctrip.base.io import named_path
from hpctrip.device.counters import Unavailable, boot_id
from hpctrip.device.nvml import Gpu

FOLDER = "HPCTRIP_KNOBS"
"""Environment variable with the folder that holds the folder of the notes; it must be local to this machine."""
_USUAL = "/var/tmp"


class RecoveryNote(BaseModel):
    """The note of one GPU, locked by this process: with its own settings, or those of a killed process."""

    file: Any = Field(exclude=True)
    """The open binary file, which is locked."""
    gpu: str
    """UUID of the GPU."""
    process: int = Field(default_factory=os.getpid)
    """The run that holds the settings."""
    boot: str = Field(default_factory=boot_id)
    """The start of the machine's kernel in which the settings were applied."""
    cap_mw: int | None = None
    """The power cap that was set; None: none was."""
    cap_before_mw: int | None = None
    clock_mhz: int | None = None
    """The clock that is held; None: none. NVML cannot tell which clock was held before, so it is freed."""

    @classmethod
    def take(cls, gpu: Gpu) -> RecoveryNote:
        """Hold the settings of a GPU for this process; those that a killed run has left are undone. Raises Unavailable
        where another run holds them, where no note can be written, and where the GPU refuses."""
        folder = notes_folder()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_others(folder)
            file = _opened(folder / f"{gpu.uuid}.json", os.O_CREAT)
        except OSError as error:
            raise Unavailable(f"{folder}: no note can be kept there: {error.strerror}") from error
        if not _lock(file):
            with file:
                holder = note.process if (note := _read(file)) else "unknown"
            raise Unavailable(f"{gpu.uuid}: another run (process {holder}) holds its settings")
        # under the lock: its process may have written it, and been killed, a moment ago
        if (note := _read(file)) and note.is_current:
            note.restore()
            return cls.take(gpu)
        note = cls(file=file, gpu=gpu.uuid)
        note.write()
        return note

    def change(self, make: Callable[[], None], **settings: int) -> None:
        """Write these settings to the note, then make them; if the GPU refuses, the note is as before. Raises
        Unavailable."""
        before = self.model_dump(include=settings.keys())
        try:
            self.write(**settings)
            make()
        except Unavailable:
            self.write(**before)
            raise

    def write(self, **settings: int | None) -> None:
        """Write the note with these settings; on disk when it returns. Raises Unavailable."""
        for name, value in settings.items():
            setattr(self, name, value)
        data = self.model_dump_json().encode()
        try:
            os.pwrite(self.file.fileno(), data, 0)
            os.ftruncate(self.file.fileno(), len(data))
            os.fsync(self.file.fileno())
        except OSError as error:
            raise Unavailable(f"{self.file.name}: {error.strerror}") from error

    def restore(self) -> None:
        """Undo the settings, except a cap that has been changed since, and let go of the GPU. Where one cannot be
        undone, the note stays, and Unavailable is raised."""
        with self.file:
            gpu = Gpu.of(self.gpu)
            if self.clock_mhz is not None:
                gpu.unlock_clock()
            if self.cap_mw is not None and self.cap_before_mw is not None and gpu.cap_mw == self.cap_mw:
                gpu.set_cap_mw(self.cap_before_mw)
            with suppress(OSError):
                os.ftruncate(self.file.fileno(), 0)  # removed, it could be locked by two processes

    @property
    def is_current(self) -> bool:
        """Whether it names settings, of this start of the machine."""
        return self.boot == boot_id() and bool(self.cap_mw or self.clock_mhz)

    def __str__(self) -> str:
        parts = []
        if self.cap_mw and self.cap_before_mw:
            parts.append(f"power cap {self.cap_mw / 1000:g} W (before: {self.cap_before_mw / 1000:g} W)")
        if self.clock_mhz:
            parts.append(f"clock {self.clock_mhz} MHz")
        return f"{self.gpu}: {' and '.join(parts)}, left by process {self.process}, which was killed"


def leftovers() -> Iterator[RecoveryNote]:
    """The notes of this user whose processes were killed. Each is locked while the caller has it."""
    folder = notes_folder()
    with suppress(OSError):
        _refuse_others(folder)
        for path in sorted(folder.glob("*.json")):
            with suppress(OSError), ExitStack() as until_read:
                file = until_read.enter_context(_opened(path))
                if _lock(file) and (note := _read(file)) and note.is_current:
                    until_read.pop_all()
                    yield note


def restore_leftovers() -> None:
    """Undo the settings of all killed runs of this user, as far as the GPUs permit."""
    for note in leftovers():
        with suppress(Unavailable):  # the note stays
            note.restore()


def _opened(path: Path, flags: int = 0) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600), "r+b", buffering=0)


def _lock(file: BinaryIO) -> bool:
    """Lock a note; whether that was possible."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: BinaryIO) -> RecoveryNote | None:
    """The note in a file; None where its process was killed before it had written it."""
    with suppress(ValueError, TypeError):
        return RecoveryNote(**{**json.loads(file.read()), "file": file})
    return None


def notes_folder() -> Path:
    """The folder of this user's notes. Raises InputError where $HPCTRIP_KNOBS names none to hold it."""
    return named_path(os.environ.get(FOLDER) or _USUAL, FOLDER) / f"hpctrip-knobs-{os.geteuid()}"


def _refuse_others(folder: Path) -> None:
    """Raise PermissionError unless the folder is this user's alone: a note decides what root sets."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(0, "it is not a folder of this user alone")
