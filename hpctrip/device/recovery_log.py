"""Recovery notes: the settings that a process has applied to a GPU of this machine, so that a later start can undo
them.

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
from collections.abc import Iterator
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
    """The note of one GPU, locked by this process: with its own settings, or those of a killed process."""

    file: Any = Field(exclude=True)
    """The open binary file, which is locked."""
    gpu: str
    """UUID of the GPU."""
    process: int
    """The run that holds the settings."""
    boot: str = Field(default_factory=boot_id)
    """The start of the machine's kernel in which the settings were applied."""
    applied: AppliedSettings = AppliedSettings()

    @classmethod
    def take(cls, gpu: Gpu, process: int) -> RecoveryNote:
        """Hold the settings of a GPU for the run `process`; those that a killed run has left are undone. Raises
        Unavailable where another run holds them, where no note can be written, and where the GPU refuses."""
        try:
            folder = _folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_others(folder)
            file = _opened(folder / f"{gpu.uuid}.json", os.O_CREAT)
        except OSError as error:
            raise Unavailable(f"{_folder()}: no note can be kept there: {error.strerror}") from error
        if not _lock(file):
            with file:
                holder = _content(file).get("process", "unknown")
            raise Unavailable(f"{gpu.uuid}: another run (process {holder}) holds its settings")
        if left := _left_in(file):
            left.put_back()
            return cls.take(gpu, process)
        note = cls(file=file, gpu=gpu.uuid, process=process)
        note.write()
        return note

    def write(self) -> None:
        """Record the settings before they are applied; on disk when it returns. Raises Unavailable."""
        data = self.model_dump_json().encode()
        try:
            os.pwrite(self.file.fileno(), data, 0)
            os.ftruncate(self.file.fileno(), len(data))
            os.fsync(self.file.fileno())
        except OSError as error:
            raise Unavailable(f"{self.file.name}: {error.strerror}") from error

    def put_back(self) -> None:
        """Undo the settings and let go of the GPU. Where one cannot be undone, the note stays, and Unavailable is
        raised."""
        with self.file:
            self.applied.put_back(Gpu.of(self.gpu))
            with suppress(OSError):
                os.ftruncate(self.file.fileno(), 0)  # removed, it could be locked by two processes

    def __str__(self) -> str:
        return f"{self.gpu}: {self.applied.words}, left by process {self.process}, which was killed"


def leftovers() -> Iterator[RecoveryNote]:
    """The notes of this user whose processes were killed. Each is locked while the caller has it."""
    folder = _folder()
    with suppress(OSError):
        _refuse_others(folder)
        for path in sorted(folder.glob("*.json")):
            with suppress(OSError), ExitStack() as until_read:
                file = until_read.enter_context(_opened(path))
                if _lock(file) and (note := _left_in(file)):
                    until_read.pop_all()
                    yield note


def _opened(path: Path, flags: int = 0) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600), "r+b", buffering=0)


def _lock(file: BinaryIO) -> bool:
    """Lock a note; whether that was possible."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content(file: BinaryIO) -> dict[str, Any]:
    """The content of a note; empty where its process was killed before it had written it."""
    with suppress(ValueError):
        content = json.loads(file.read())
        return content if isinstance(content, dict) else {}
    return {}


def _left_in(file: BinaryIO) -> RecoveryNote | None:
    """The note in a locked file; None where it names no setting, or one of before the machine was started."""
    with suppress(ValueError):
        note = RecoveryNote(file=file, **_content(file))
        if note.boot == boot_id() and note.applied.words:
            return note
    return None


def place_of_notes() -> Path:
    """The folder, absolute, that holds the folder of the notes. Raises InputError where $HPCTRIP_KNOBS names none."""
    return named_path(os.environ.get(FOLDER) or _USUAL, FOLDER).absolute()


def _folder() -> Path:
    return place_of_notes() / f"hpctrip-knobs-{os.geteuid()}"


def _refuse_others(folder: Path) -> None:
    """Raise PermissionError unless the folder is this user's alone: a note decides what root sets."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(0, "it is not a folder of this user alone")
