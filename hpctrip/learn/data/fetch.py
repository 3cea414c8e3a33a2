"""Downloads of public data sets: fetched and checked by pooch, unpacked, and put in place."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from hpctrip.base.errors import InputError
from hpctrip.base.units import GB


@dataclass(frozen=True)
class Download:
    """A public data set: its address, its checksum, and the files wanted of it."""

    title: str
    url: str
    known_hash: str
    """"<algorithm>:<hex digits>" of the downloaded file."""
    stored_bytes: float
    """Bytes of the wanted files; while unpacking, up to three times as much is taken."""
    wanted: str = "*"
    """Glob pattern of the wanted files' names, at any depth of the archive."""
    file_name: str = ""
    """Name under which the downloaded file is stored; empty where it is an archive."""
    keeps_folders: bool = False
    """Keep the archive's folders; else the wanted files lie flat in the destination."""


SOURCES = {
    "emnist": Download(
        "EMNIST",
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",  # all six splits as gzipped IDX files
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        0.6 * GB,
        wanted="emnist-*",
    ),
    "shakespeare": Download(
        "tinyshakespeare",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        0.0012 * GB,
        file_name="tinyshakespeare.txt",
    ),
    "speech": Download(
        "Speech Commands v2",
        "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
        "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        3.8 * GB,
        keeps_folders=True,
    ),
}
"""The public data sets that `hpctrip fetch` knows, by the workload that trains on them."""

_TIMEOUT_S = 30
"""Longest silence of a server."""
_CHUNK_BYTES = 2**16


def fetch(source: Download, destination: str | Path) -> list[Path]:
    """Download the source and put its wanted files into `destination`; returns their paths, sorted.

    Download and unpacking happen in a temporary folder inside `destination`, so files appear there whole, after the
    checksum was verified, and replace older ones. Raises InputError where the download fails, is not the expected file,
    or cannot be stored.
    """
    destination = Path(destination).expanduser().resolve()
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=destination) as folder:
            unpacked = _unpacked(source, _download(source, folder))
            placed = []
            for path in filter(Path.is_file, sorted(unpacked.rglob(source.wanted))):
                target = destination / (path.relative_to(unpacked) if source.keeps_folders else path.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                placed.append(path.replace(target))
            return sorted(placed)
    except OSError as error:
        raise InputError(
            str(destination),
            f"{source.title} cannot be stored here ({error.strerror or error})",
            f"it takes {3 * source.stored_bytes / GB:.2g} GB while unpacking, {source.stored_bytes / GB:.2g} GB "
            "afterwards: make room or choose another directory",
        ) from None


def _download(source: Download, folder: str) -> Path:
    """The downloaded file in this folder, its checksum verified."""
    import pooch  # heavy

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=True, chunk_size=_CHUNK_BYTES, timeout=_TIMEOUT_S)
    by_hand = f"download it elsewhere and {'put it' if source.file_name else f'unpack its {source.wanted} files'} there"
    try:
        return Path(pooch.retrieve(source.url, source.known_hash, "download", folder, downloader=downloader))
    except ValueError:
        raise InputError(
            source.url,
            f"the downloaded file is not the expected one: its hash is not {source.known_hash}",
            f"the download was damaged or the server's file has changed: try again, or {by_hand}",
        ) from None
    except OSError as error:
        # errors of the disk have a number, those of the network, which come from requests, have none
        if error.errno is not None:
            raise
        raise InputError(
            source.url,
            f"the download failed ({_cause(error)})",
            f"this machine needs a way to {source.url.split('/')[2]}: try again, or {by_hand}",
        ) from None


def _cause(error: BaseException) -> str:
    """The innermost reason of a chain of network errors: "Connection refused" rather than its three wrappers."""
    while error.__context__ is not None:
        error = error.__context__
    return str(getattr(error, "strerror", None) or error)


def _unpacked(source: Download, download: Path) -> Path:
    """A folder beside the download with its content; a copy of one that is no archive (pooch's own file is private).
    The checksum says that the archive is whole and is the published one."""
    folder = download.with_name("unpacked")
    folder.mkdir()
    if source.file_name:
        shutil.copyfile(download, folder / source.file_name)
    elif zipfile.is_zipfile(download):
        with zipfile.ZipFile(download) as archive:
            archive.extractall(folder)
    else:
        with tarfile.open(download) as archive:
            # Python 3.11.0 to 3.11.3 have no filters: there the verified checksum has to do
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
    return folder
