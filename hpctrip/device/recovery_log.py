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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import BaseModel

from hpctrip.device.counters import Unavailable, boot_id
from hpctrip.device.nvml import Gpu

FOLDER = "HPCTRIP_KNOBS"
"""Environment variable with the folder that holds the folder of the notes; it must be local to this machine."""
_USUAL = "/var/tmp"
_MOST_BYTES = 2**20


class AppliedSettings(BaseModel):
    """The settings of one GPU, and its power cap before."""

    cap_mw: int | None = None
    """The power cap that was set; None: none was."""
    cap_before_mw: int | None = None
    clock_mhz: int | None = None
    """The clock that is held; None: none. NVML cannot tell which clock was held before, so it is freed."""

    @property
    def words(self) -> str:
        """A line for people."""
        cap = self.cap_mw and self.cap_before_mw and f"power cap {_watts(self.cap_mw)}"
        cap = cap and f"{cap} (before: {_watts(self.cap_before_mw or 0)})"
        return " and ".join(filter(None, (cap, self.clock_mhz and f"clock {self.clock_mhz} MHz")))

    def put_back(self, gpu: Gpu) -> None:
        """Undo it, unless somebody has set another cap since. Raises Unavailable."""
        if self.clock_mhz is not None:
            gpu.unlock_clock()
        if self.cap_mw is not None and self.cap_before_mw is not None and gpu.cap_mw == self.cap_mw:
            gpu.set_cap_mw(self.cap_before_mw)


class _Content(BaseModel):
    boot: str
    process: int
    gpus: dict[str, AppliedSettings]


class RecoveryNote:
    """The note of this process, rewritten whenever something is set. Raises Unavailable where none can be written."""

    def __init__(self, process: int):
        """`process` is the run that asks for the settings."""
        self._process = process
        try:
            folder = _folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_others(folder)
            self._path = folder / f"{process}-{secrets.token_hex(4)}.json"
            self._file = self._path.open("xb")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            raise Unavailable(f"{_folder()}: no note can be kept there: {error.strerror}") from error

    def write(self, gpus: Mapping[str, AppliedSettings]) -> None:
        """Record the settings of every GPU before they are applied; on disk when it returns. Raises Unavailable."""
        data = _Content(boot=boot_id(), process=self._process, gpus=dict(gpus)).model_dump_json().encode()
        try:
            os.pwrite(self._file.fileno(), data, 0)
            os.ftruncate(self._file.fileno(), len(data))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error

    def remove(self) -> None:
        """Remove the note: everything is put back."""
        with suppress(OSError):
            self._path.unlink()
        self._file.close()


@dataclass(frozen=True)
class Leftover:
    """The note of a process that was killed, locked by this one. Closing its file leaves it for the next start."""

    path: Path
    file: IO[bytes]
    process: int
    gpus: dict[str, AppliedSettings]

    def __str__(self) -> str:
        held = ", ".join(f"{uuid}: {found.words}" for uuid, found in self.gpus.items())
        return f"{held}, left by process {self.process}, which was killed"

    def put_back(self) -> None:
        """Undo its settings. Raises Unavailable; the note then stays."""
        for uuid, held in self.gpus.items():
            held.put_back(Gpu.of(uuid))
        self.forget()

    def forget(self) -> None:
        """Remove the note: its settings are undone, or another process undoes them."""
        with suppress(OSError):
            self.path.unlink()
        self.file.close()


def leftovers() -> Iterator[Leftover]:
    """The notes of this user whose processes were killed."""
    folder = _folder()
    with suppress(OSError):
        _refuse_others(folder)
        for path in sorted(folder.glob("*.json")):
            if found := _leftover(path):
                yield found


def _leftover(path: Path) -> Leftover | None:
    with suppress(OSError):
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "rb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = _Content.model_validate(json.loads(file.read(_MOST_BYTES) or b"null"))
        except ValueError:  # pydantic's is one too
            # killed before it had written, so before it had set anything
            path.unlink()
        except OSError:
            file.close()  # its process lives
            return None
        else:
            if content.boot == boot_id():
                return Leftover(path, file, content.process, content.gpus)
            path.unlink()
        file.close()
    return None


def _folder() -> Path:
    return Path(os.environ.get(FOLDER) or _USUAL) / f"hpctrip-knobs-{os.geteuid()}"


def _refuse_others(folder: Path) -> None:
    """Raise PermissionError unless the folder is this user's alone: a note decides what root sets."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(0, "it is not a folder of this user alone")


def _watts(mw: int) -> str:
    return f"{mw / 1000:g} W"
