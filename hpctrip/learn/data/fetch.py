"""Fetch a public data set: download with a checksum, go on where an earlier try stopped, unpack, put in place."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pooch
import requests  # comes with pooch, which lets its exceptions through
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from hpctrip.base.errors import InputError
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
_PARTIAL = ".fetch-partial"


def fetch(source: Source, destination: str | Path, progress: bool = True) -> list[Path]:
    """Download the source and put its wanted files into `destination`; returns their paths, sorted.

    What an interrupted download has brought stays in `destination` and the next try goes on from there. Unpacking
    happens in a temporary folder inside `destination` (so that putting in place is a rename); only whole files of a
    verified download are put in place, and replace older ones. Raises InputError when the download cannot be had, is
    not the expected one, or cannot be stored.
    """
    destination = Path(destination).expanduser().resolve()
    created = not destination.exists()
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=destination) as aside:
            downloaded = _download(source, Path(aside), destination / _PARTIAL, progress)
            if source.file_name:
                return [downloaded.replace(destination / source.file_name)]
            return _put_in_place(source, _unpack(source, downloaded, Path(aside) / "files"), destination)
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


def _download(source: Source, folder: Path, partial: Path, progress: bool) -> Path:
    """The verified download in `folder`."""
    name = source.url.rsplit("/", 1)[-1]  # its ending says how to unpack it
    downloader = _resuming(partial, source.title, progress)
    pooch.get_logger().setLevel("WARNING")  # it would announce the temporary file's name
    try:
        return Path(
            pooch.retrieve(source.url, source.known_hash, fname=name, path=folder, downloader=downloader)
        )
    except requests.RequestException as error:
        kept = f" after {partial.stat().st_size:,} bytes, which are kept" if partial.exists() else ""
        raise InputError(
            source.url,
            f"the download failed{kept} ({_cause(error)})",
            f"this machine needs a way to {source.url.split('/')[2]}: try again, or {_by_hand(source)}",
        ) from None
    except ValueError:  # pooch: the hash of the downloaded file is not known_hash
        raise InputError(
            source.url,
            f"the downloaded file is not the expected one: its hash is not {source.known_hash}",
            f"the download was damaged or the server's file has changed: try again, or {_by_hand(source)}",
        ) from None


def _resuming(partial: Path, title: str, progress: bool) -> Callable[[str, str, Any], None]:
    """A downloader for pooch that goes on from `partial`, where an earlier try has left one."""

    def download(url: str, output_file: str, _: Any) -> None:
        have = partial.stat().st_size if partial.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as answer:
            if answer.status_code != requests.codes.requested_range_not_satisfiable:  # else: all is here
                answer.raise_for_status()
                if answer.status_code != requests.codes.partial_content:
                    have = 0  # a server that begins anew
                length = answer.headers.get("Content-Length")
                columns = (
                    TextColumn("{task.description}"),
                    BarColumn(),
                    DownloadColumn(),
                    TransferSpeedColumn(),
                )
                with (
                    partial.open("ab" if have else "wb") as file,
                    Progress(*columns, console=Console(stderr=True), disable=not progress) as bar,
                ):
                    task = bar.add_task(title, total=have + int(length) if length else None, completed=have)
                    for chunk in answer.iter_content(_CHUNK_BYTES):
                        file.write(chunk)
                        bar.advance(task, len(chunk))
        partial.replace(output_file)

    return download


def _cause(error: BaseException) -> str:
    """The innermost reason of a chain of network errors: "Connection refused" rather than its three wrappers."""
    while error.__context__ is not None:
        error = error.__context__
    return str(getattr(error, "strerror", None) or error)


def _by_hand(source: Source) -> str:
    what = "put it" if source.file_name else f"unpack its {source.wanted} files"
    return f"download it elsewhere and {what} there"


def _unpack(source: Source, archive: Path, folder: Path) -> Path:
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
    return folder


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
