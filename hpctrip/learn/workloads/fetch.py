"""Fetch public data sets: download with a checksum, unpack, put in place."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pooch
import requests  # comes with pooch, which lets its exceptions through

from hpctrip.base.errors import InputError

OFFICIAL_URL = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
"""NIST's archive of all six splits as gzipped IDX files, 562 MB."""
OFFICIAL_MD5 = "md5:58c8d27c78d21e728a6bc7b3cc06412e"

SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
"""1.1 MB of plays in blocks of `ROLE:` and its lines, 309 roles; the text is in the public domain."""
SHAKESPEARE_SHA256 = "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

_TIMEOUT_S = 30  # of silence


def fetch_emnist(
    destination: str | Path,
    url: str = OFFICIAL_URL,
    known_hash: str = OFFICIAL_MD5,
    progress: bool = True,
) -> list[Path]:
    """Download the archive and put its `emnist-*` files into `destination`; returns their paths, sorted.

    `known_hash` is "<algorithm>:<hex digits>". Only whole files of a verified archive are put in place, and replace
    older ones. Raises InputError when the archive cannot be had, is not the expected one, or cannot be stored.
    """
    by_hand = "or download the archive elsewhere and unpack its emnist-*-ubyte.gz files there"
    room = "it takes 1.2 GB while unpacking, 0.6 GB afterwards"
    with _aside(destination, "EMNIST", room) as folder:
        archive = _download(url, known_hash, folder, progress, by_hand)
        return _put(_unpack(archive, folder / "files", url, by_hand), folder.parent)


def fetch_shakespeare(
    destination: str | Path,
    url: str = SHAKESPEARE_URL,
    known_hash: str = SHAKESPEARE_SHA256,
    progress: bool = True,
) -> list[Path]:
    """Download tinyshakespeare, as `tinyshakespeare.txt` in `destination`. Otherwise as `fetch_emnist`.

    LEAF's own Shakespeare and FEMNIST files are not published: LEAF's scripts make them.
    """
    with _aside(destination, "tinyshakespeare", "it takes 1.1 MB") as folder:
        by_hand = "or download the file elsewhere and put it there as tinyshakespeare.txt"
        text = _download(url, known_hash, folder, progress, by_hand)
        return _put([text.rename(folder / "tinyshakespeare.txt")], folder.parent)


FETCHERS = {"emnist": fetch_emnist, "shakespeare": fetch_shakespeare}
"""By the workload that trains on the data."""


@contextlib.contextmanager
def _aside(destination: str | Path, name: str, room: str) -> Iterator[Path]:
    """A temporary folder inside `destination`, so that putting in place is a rename. Where that stays empty and was
    not there before, it is removed. InputError where the data cannot be stored."""
    destination = Path(destination).expanduser().resolve()
    created = not destination.exists()
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=destination) as folder:
            yield Path(folder)
    except OSError as error:
        raise InputError(
            str(destination),
            f"{name} cannot be stored here ({error.strerror or error})",
            f"{room}: make room or choose another directory",
        ) from None
    finally:
        if created:
            with contextlib.suppress(OSError):  # not empty: all went well
                destination.rmdir()


def _put(files: list[Path], destination: Path) -> list[Path]:
    """The files in their place, sorted."""
    return sorted(path.replace(destination / path.name) for path in files)


def _download(url: str, known_hash: str, folder: Path, progress: bool, by_hand: str) -> Path:
    """The verified file in `folder`; `by_hand` says what to do where it cannot be had."""
    downloader = pooch.HTTPDownloader(progressbar=progress, timeout=_TIMEOUT_S, chunk_size=2**20)
    try:
        return Path(pooch.retrieve(url, known_hash, fname="download", path=folder, downloader=downloader))
    except requests.RequestException as error:
        raise InputError(url, f"the download failed ({_cause(error)})", f"try again, {by_hand}") from None
    except ValueError:  # pooch: the hash of the downloaded file is not known_hash
        raise InputError(
            url,
            f"the downloaded file is not the expected one: its hash is not {known_hash}",
            f"the download was cut short or the server's file has changed: try again, {by_hand}",
        ) from None


def _cause(error: BaseException) -> str:
    """The innermost reason of a chain of network errors: "Connection refused" rather than its three wrappers."""
    while error.__context__ is not None:
        error = error.__context__
    return str(getattr(error, "strerror", None) or error)


def _unpack(archive: Path, folder: Path, url: str, by_hand: str) -> list[Path]:
    """The `emnist-*` files of the archive, unpacked flat into `folder`."""
    folder.mkdir()
    try:
        with zipfile.ZipFile(archive) as content:
            for member in content.infolist():
                name = PurePosixPath(member.filename).name
                if name.startswith("emnist-") and not member.is_dir():
                    with content.open(member) as source, (folder / name).open("wb") as target:
                        shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(url, f"not a readable zip archive ({error})", by_hand) from None
    paths = list(folder.iterdir())
    if not paths:
        raise InputError(url, "the archive holds no emnist-* files", "check the address")
    return paths
