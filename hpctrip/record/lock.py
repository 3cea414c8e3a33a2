"""A results file as the output of one job at a time: its name, whether it can be written, and the lock on it and the
checkpoints beside it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_suffix, check_writable, remove_leftovers, unwritable
from hpctrip.record.checkpoint import generations

SUFFIXES = (".h5", ".hdf5")
"""The suffixes of results files."""


def default_path(name: str, time: str = "") -> str:
    """Path of the results file of a scenario when the user names none. `time` is by default that of now, with
    microseconds, so that jobs of an array that start together write different files."""
    return f"results/{name}-{time or f'{datetime.now():%Y%m%d-%H%M%S-%f}'}.h5"


def check_name(out: str | None) -> None:
    """Raise InputError where `out` has no suffix of a results file. Folders are left to `check_writable`."""
    if out is not None and not Path(out).is_dir():
        check_suffix(out, SUFFIXES)


class HeldError(InputError):
    """Raised where another job holds the lock on a results file."""


def is_held(path: str | Path) -> bool:
    """Whether a job holds the lock on this results file. The lock file of a killed job is locked for a moment to find
    out; a job that starts in that moment is refused."""
    try:
        with open(f"{os.path.realpath(path)}.lock", "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_abandoned(path: str | Path) -> bool:
    """Whether the process that wrote this results file has certainly ended: there is no lock file, or it names a
    process of this machine and is not locked. False where the process may still run: some file systems do not show the
    locks of other machines."""
    try:
        with open(f"{os.path.realpath(path)}.lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return _holder(file.read())["host"] == socket.gethostname()
    except FileNotFoundError:
        return True
    except (OSError, LookupError):
        return False


class OutputLock:
    """Exclusive lock on a results file, from construction to `release` or the end of this process.

    The operating system keeps the lock (flock on `FILE.h5.lock`); the content of the file names the holder. Raises
    HeldError with host, process and job where another job holds it. On a file system without locks, `note` warns and
    the run continues. On NFS, and on Lustre mounted with flock, the lock excludes jobs on other machines. If a machine
    is lost while it holds the lock, the same Slurm job takes the lock over when it is requeued; otherwise the user
    removes the lock file.
    """

    def __init__(self, path: str | Path):
        self._path = Path(f"{os.path.realpath(path)}.lock")
        self.note = ""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
            self._file.seek(0)
            if (
                killed := _holder(self._file.read())
            ) and not self.note:  # who ends by itself removes the file
                self.note = (
                    f"an earlier start, {killed['process']}, was killed: this one goes on where it saved last"
                )
            self._file.seek(0)
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
                    raise HeldError(
                        str(self._path).removesuffix(".lock"),
                        f"is being written by {holder.get('process', 'another process')}",
                        f"wait for it, choose another --out, or remove {self._path} if that machine is gone",
                    ) from None
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
            file.close()  # the previous holder has removed it

    def release(self) -> None:
        """Release the lock and remove its file."""
        if not self._file.closed:
            if is_at(self._file.fileno(), self._path):
                self._path.unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> OutputLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@contextmanager
def locked(path: str, overwrite: bool) -> Iterator[OutputLock]:
    """Context that locks a results file and its checkpoints for writing. It releases the lock only if the body raises:
    the run does so at its end. Raises InputError where a file cannot be written, or exists and `overwrite` is false."""
    check_writable(path, overwrite=True)
    lock = OutputLock(path)
    try:
        check_writable(path, overwrite)  # only now: of a file that a job writes the lock has said so
        for file in generations(path):
            if file.exists() and not overwrite:
                raise InputError(str(file), "exists already", "resume from it, or --overwrite")
            check_writable(file, overwrite)
        yield lock
    except BaseException:
        lock.release()
        raise


def _myself() -> dict[str, str]:
    job, since = os.environ.get("SLURM_JOB_ID", ""), datetime.now(UTC).isoformat(timespec="seconds")
    in_job = f" (job {job})" if job else ""
    return {
        "process": f"process {os.getpid()} on {socket.gethostname()}{in_job}, since {since}",
        "host": socket.gethostname(),
        "job": job,
        "restarts": os.environ.get("SLURM_RESTART_COUNT", "0"),
    }


def _holder(text: bytes) -> dict[str, str]:
    """The holder that a lock file names; empty where the file is damaged or empty."""
    with suppress(ValueError, LookupError, TypeError):
        holder = json.loads(text)
        return {name: str(holder[name]) for name in _myself()}
    return {}


def _is_an_earlier_start_of_this_job(holder: dict[str, str]) -> bool:
    """Whether the holder is an earlier start of this Slurm job. Slurm requeues a job only after its last start has
    ended, so the lock is then stale (that of a lost machine)."""
    mine = _myself()
    if not holder or not mine["job"] or holder["job"] != mine["job"]:
        return False
    with suppress(ValueError):  # no number in the lock file, or in this environment
        return int(holder["restarts"]) < int(mine["restarts"])
    return False


def is_at(number: int, path: Path) -> bool:
    """Whether the open file with this descriptor is still the file at `path`."""
    try:
        return os.path.samestat(os.fstat(number), os.lstat(path))
    except FileNotFoundError:
        return False
