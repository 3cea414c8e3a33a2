"""Fetch a public data set: download with a checksum, go on where an earlier try stopped, unpack, put in place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pooch
import requests  # comes with pooch, which lets its exceptions through
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from hpctrip.base.errors import InputError
from hpctrip.base.io import digest
from hpctrip.base.units import GB


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and which of its files are wanted."""

    title: str
    url: str
    known_hash: str
    """"<algorithm>:<hex digits>" of the downloaded file."""
    stored_bytes: float
    """Of the wanted files; while unpacking, up to three times as much is taken."""
    wanted: str = "*"
    """Glob pattern of the wanted files' names, at any depth of the archive."""
    file_name: str = ""
    """The downloaded file is not an archive but the data, stored under this name."""
    keeps_folders: bool = False
    """Keep the archive's folders; else the wanted files lie flat in the destination."""


SOURCES = {
    "emnist": Source(
        "EMNIST",
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",  # all six splits as gzipped IDX files
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        0.6 * GB,
        wanted="emnist-*",
    ),
    "shakespeare": Source(
        "tinyshakespeare",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        0.0012 * GB,
        file_name="tinyshakespeare.txt",
    ),
    "speech": Source(
        "Speech Commands v2",
        "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
        "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        3.8 * GB,
        keeps_folders=True,
    ),
}
"""The public data sets that `hpctrip fetch` knows, by the workload that trains on them."""

_TIMEOUT_S = 30  # of silence
_CHUNK_BYTES = 2**16
_SLACK_BYTES = 2**20
"""A download may be twice as large as what is stored of it, and this much larger; more is not fetched."""


def fetch(source: Source, destination: str | Path, progress: bool = True) -> list[Path]:
    """Download the source and put its wanted files into `destination`; returns their paths, sorted.

    What an interrupted download has brought stays in `destination`, and the next try for the same source goes on from
    there. Unpacking happens in a folder beside it (so that putting in place is a rename); only whole files of a
    verified download are put in place, and replace older ones. Raises InputError when the download cannot be had, is
    not the expected one, or cannot be stored, and where another process is fetching the same.
    """
    destination = Path(destination).expanduser().resolve()
    created = not destination.exists()
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with _own(partial_path(source, destination)) as partial:
            _download(source, partial, progress)
            if source.file_name:
                return [partial.replace(destination / source.file_name)]
            try:
                with _fresh_folder(partial.with_suffix(".files")) as folder:
                    _unpack(source, partial, folder)
                    files = _put_in_place(source, folder, destination)
            except InputError:  # it is whole, and of no use
                partial.unlink()
                raise
            partial.unlink()
            return files
    except OSError as error:
        raise InputError(
            str(destination),
            f"{source.title} cannot be stored here ({error.strerror or error})",
            f"it takes {3 * source.stored_bytes / GB:.2g} GB while unpacking, {source.stored_bytes / GB:.2g} GB "
            "afterwards: make room or choose another directory",
        ) from None
    finally:
        if created:
            with contextlib.suppress(OSError):  # not empty: all went well, or a part is kept for the next try
                destination.rmdir()


def partial_path(source: Source, destination: Path) -> Path:
    """Where the download of this source, and of no other, grows."""
    return destination / f".fetch-{digest(f'{source.url} {source.known_hash}'.encode())}.part"


@contextlib.contextmanager
def _own(partial: Path) -> Iterator[Path]:
    """The partial download, there and locked: the operating system keeps the lock until this process ends, so whatever
    lies beside it is this process's or a dead one's. It is removed afterwards where it is empty."""
    while True:
        file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise InputError(
                str(partial.parent),
                "another process is fetching the same into it",
                "wait for it, or choose another directory",
            ) from None
        except OSError as error:
            if error.errno not in (
                errno.ENOLCK,
                errno.ENOSYS,
                errno.EOPNOTSUPP,
            ):  # no locks here: go on without
                os.close(file)
                raise
        if _is_still(file, partial):
            break
        os.close(file)  # whoever was done a moment ago has removed it
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileExistsError(errno.EEXIST, f"{partial.name} is no regular file")
        yield partial
    finally:
        if _is_still(file, partial) and os.fstat(file).st_size == 0:
            partial.unlink()
        os.close(file)


def _is_still(file: int, path: Path) -> bool:
    """Whether an open file is the one under that name."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.lstat(path))
    return False


@contextlib.contextmanager
def _fresh_folder(folder: Path) -> Iterator[Path]:
    """An empty folder, removed afterwards; one that a killed process has left is removed first."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(source: Source, partial: Path, progress: bool) -> None:
    """Let `partial` become the whole and verified download. What is not the expected file is removed."""
    try:
        _go_on(source, partial, progress)
    except requests.RequestException as error:
        have = partial.stat().st_size
        kept = f" after {have:,} bytes, which are kept" if have else ""
        raise InputError(
            source.url,
            f"the download failed{kept} ({_cause(error)})",
            f"this machine needs a way to {source.url.split('/')[2]}: try again, or {_by_hand(source)}",
        ) from None
    algorithm, expected = source.known_hash.split(":")
    if pooch.file_hash(str(partial), algorithm) != expected:
        os.truncate(partial, 0)
        raise InputError(
            source.url,
            f"the downloaded file is not the expected one: its hash is not {source.known_hash}",
            f"the download was damaged or the server's file has changed: try again, or {_by_hand(source)}",
        )


def _go_on(source: Source, partial: Path, progress: bool) -> None:
    """Download what `partial` lacks."""
    have = partial.stat().st_size
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(source.url, headers=headers, stream=True, timeout=_TIMEOUT_S) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            return  # all is here
        answer.raise_for_status()
        if answer.status_code != requests.codes.partial_content:
            have = 0  # a server that begins anew
        length = answer.headers.get("Content-Length")
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with (
            partial.open("ab" if have else "wb") as file,
            Progress(*columns, console=Console(stderr=True), disable=not progress) as bar,
        ):
            task = bar.add_task(source.title, total=have + int(length) if length else None, completed=have)
            for chunk in answer.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                bar.advance(task, len(chunk))
                have += len(chunk)
                if have > 2 * source.stored_bytes + _SLACK_BYTES:  # it will not be the expected file
                    break


def _cause(error: BaseException) -> str:
    """The innermost reason of a chain of network errors: "Connection refused" rather than its three wrappers."""
    while error.__context__ is not None:
        error = error.__context__
    return str(getattr(error, "strerror", None) or error)


def _by_hand(source: Source) -> str:
    what = "put it" if source.file_name else f"unpack its {source.wanted} files"
    return f"download it elsewhere and {what} there"


def _unpack(source: Source, archive: Path, folder: Path) -> None:
    """The archive's regular files, unpacked into `folder`; members that would lie outside of it are left out."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as content:
                content.extractall(folder)  # turns names into ones inside the folder by itself
        else:
            with tarfile.open(archive) as content:
                for member in content:
                    path = PurePosixPath(member.name)
                    # by hand: extractall has a safe filter only from Python 3.11.4 on
                    if member.isfile() and not path.is_absolute() and ".." not in path.parts:
                        (folder / path).parent.mkdir(parents=True, exist_ok=True)
                        with content.extractfile(member) as data, (folder / path).open("wb") as file:
                            shutil.copyfileobj(data, file)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise InputError(source.url, f"not a readable archive ({error})", _by_hand(source)) from None


def _put_in_place(source: Source, unpacked: Path, destination: Path) -> list[Path]:
    paths = [path for path in sorted(unpacked.rglob(source.wanted)) if path.is_file()]
    if not paths:
        raise InputError(source.url, f"the archive holds no {source.wanted} files", "check the address")
    placed = []
    for path in paths:
        target = destination / (path.relative_to(unpacked) if source.keeps_folders else path.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        placed.append(path.replace(target))
    return sorted(placed)
