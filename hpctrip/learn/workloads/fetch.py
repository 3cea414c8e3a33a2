"""Fetch the official EMNIST archive: download with a checksum, unpack the IDX files, put them in place."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

import pooch
import requests  # comes with pooch, which lets its exceptions through

from hpctrip.base.errors import InputError

OFFICIAL_URL = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
"""NIST's archive of all six splits as gzipped IDX files, 562 MB."""
OFFICIAL_MD5 = "md5:58c8d27c78d21e728a6bc7b3cc06412e"

_TIMEOUT_S = 30  # of silence
_BY_HAND = "or download the archive elsewhere and unpack its emnist-*-ubyte.gz files there"


def fetch_emnist(
    destination: str | Path,
    url: str = OFFICIAL_URL,
    known_hash: str = OFFICIAL_MD5,
    progress: bool = True,
) -> list[Path]:
    """Download the archive and put its `emnist-*` files into `destination`; returns their paths, sorted.

    `known_hash` is "<algorithm>:<hex digits>". Downloading and unpacking happen in a temporary folder inside
    `destination` (so that putting in place is a rename); only whole files of a verified archive are put in place, and
    replace older ones. Raises InputError when the archive cannot be had, is not the expected one, or cannot be stored.
    """
    destination = Path(destination).expanduser().resolve()
    created = not destination.exists()
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=destination) as aside:
            archive = _download(url, known_hash, Path(aside), progress)
            unpacked = _unpack(archive, Path(aside) / "files", url)
            return sorted(path.replace(destination / path.name) for path in unpacked)
    except OSError as error:
        raise InputError(
            str(destination),
            f"EMNIST cannot be stored here ({error.strerror or error})",
            "it takes 1.2 GB while unpacking, 0.6 GB afterwards: make room or choose another directory",
        ) from None
    finally:
        if created:
            with contextlib.suppress(OSError):  # not empty: all went well
                destination.rmdir()


def _download(url: str, known_hash: str, folder: Path, progress: bool) -> Path:
    """The verified archive in `folder`."""
    downloader = pooch.HTTPDownloader(progressbar=progress, timeout=_TIMEOUT_S, chunk_size=2**20)
    try:
        return Path(pooch.retrieve(url, known_hash, fname="archive.zip", path=folder, downloader=downloader))
    except requests.RequestException as error:
        raise InputError(url, f"the download failed ({_cause(error)})", f"try again, {_BY_HAND}") from None
    except ValueError:  # pooch: the hash of the downloaded file is not known_hash
        raise InputError(
            url,
            f"the downloaded file is not the expected one: its hash is not {known_hash}",
            f"the download was cut short or the server's file has changed: try again, {_BY_HAND}",
        ) from None


def _cause(error: BaseException) -> str:
    """The innermost reason of a chain of network errors: "Connection refused" rather than its three wrappers."""
    while error.__context__ is not None:
        error = error.__context__
    return str(getattr(error, "strerror", None) or error)


def _unpack(archive: Path, folder: Path, url: str) -> list[Path]:
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
        raise InputError(url, f"not a readable zip archive ({error})", _BY_HAND) from None
    paths = list(folder.iterdir())
    if not paths:
        raise InputError(url, "the archive holds no emnist-* files", "check the address")
    return paths
