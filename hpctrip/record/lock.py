"""One job at a time writes a results file, of whatever kind, and the checkpoints beside it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.base.io import remove_leftovers, unwritable
from hpctrip.record.checkpoint import generations


class HeldError(InputError):
    """Another job has the right to write a results file."""


def is_held(path: str | Path) -> bool:
    """Does a job have the right to write this results file now? Where there is a lock file that nobody holds, a killed
    job's, it is locked for a moment, in which a job that starts is refused. What is no regular file is no lock."""
    try:
        with open(f"{os.path.realpath(path)}.lock", "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class OutputLock:
    """The right to write a results file, from when it is made to `release`, or to the end of this process however it
    comes: the operating system keeps it (flock), not the file `FILE.h5.lock`, which says who holds it.

    Raises HeldError, which names host, process and job, where another job has the right. Where the file system
    knows no locks, `note` says so and the run goes on without. On NFS and Lustre (mounted with flock) it holds across
    machines. A lock that a lost machine seems to hold still is taken over by the same Slurm job when it is requeued;
    otherwise removing the lock file ends it.
    """

    def __init__(self, path: str | Path):
        self._path = Path(f"{os.path.realpath(path)}.lock")
        self.note = ""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
            self._file.truncate(0)
            self._file.write(json.dumps(_myself()).encode())
            self._file.flush()
        except OSError as error:
            raise unwritable(self._path, error) from error
        for written in (path, *generations(path)):
            remove_leftovers(written)

    def _locked(self) -> Any:
        """The lock file, open and locked."""
        while True:
            file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(file.read())
                file.close()
                if not _is_an_earlier_start_of_this_job(holder):
                    raise self._held(holder) from None
                self._path.unlink(missing_ok=True)
                continue
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                    file.close()
                    raise
                self.note = (
                    f"warning: {self._path.parent} cannot lock files ({error.strerror}): "
                    "see to it that no other job has this --out"
                )
                return file
            if is_at(file.fileno(), self._path):
                return file
            file.close()  # its holder has removed it meanwhile

    def _held(self, holder: dict[str, Any]) -> HeldError:
        who = (
            f"process {holder['pid']} on {holder['host']}"
            + (f" (job {holder['job']})" if holder["job"] else "")
            + f", since {holder['since']}"
            if holder
            else "another process"
        )
        return HeldError(
            str(self._path).removesuffix(".lock"),
            f"is being written by {who}",
            f"wait for it, choose another --out, or remove {self._path} if that machine is gone",
        )

    def release(self) -> None:
        """Let others write. Nothing of the lock is left."""
        if not self._file.closed:
            if is_at(self._file.fileno(), self._path):
                self._path.unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> OutputLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _myself() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "restarts": os.environ.get("SLURM_RESTART_COUNT", "0"),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _holder(text: bytes) -> dict[str, Any]:
    """The holder that a lock file names; empty where the file is damaged or empty."""
    try:
        holder = json.loads(text)
        return {name: str(holder[name]) for name in _myself()}
    except (ValueError, LookupError, TypeError):
        return {}


def _is_an_earlier_start_of_this_job(holder: dict[str, Any]) -> bool:
    """Slurm starts a job again only once its last start is over, though a lost machine may still hold the lock."""
    mine = _myself()
    if not holder or not mine["job"] or holder["job"] != mine["job"]:
        return False
    return holder["restarts"].isdecimal() and int(holder["restarts"]) < int(mine["restarts"])


def is_at(number: int, path: Path) -> bool:
    """Is this open file still the one under that name?"""
    try:
        return os.path.samestat(os.fstat(number), os.lstat(path))
    except FileNotFoundError:
        return False
