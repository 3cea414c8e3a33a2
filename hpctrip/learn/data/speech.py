"""Speech Commands as it is published: word/speaker_nohash_n.wav (or .flac), in a folder or in a tar archive.

Two lists name the clips for testing and for validation. They name .wav files and are matched without the suffix, so
clips that were converted keep their split. `_background_noise_`, and whatever else begins with _ or ., is no word.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file
from hpctrip.base.text import unknown_name
from hpctrip.learn.data.mfcc import SAMPLE_RATE, WINDOW, mfcc

if TYPE_CHECKING:
    from rich.progress import Progress

TESTING, VALIDATION = LISTS = ("testing_list.txt", "validation_list.txt")
SUFFIXES = (".wav", ".flac")
_LAYOUT = "<word>/<speaker>_nohash_<n>.wav (or .flac)"
MAX_AMPLITUDE = 100.0
"""Largest magnitude of a sample. Full scale is 1, which files of floating-point numbers may exceed."""
_CHUNK = 2048  # files in memory at once: 64 MB


@dataclass(frozen=True)
class Clips:
    """Clips of the wanted words, sorted by name."""

    names: list[str]
    """`word/speaker_nohash_n`, without the suffix."""
    features: np.ndarray
    """[num_clips, 98, 40] float32, see `mfcc`."""
    lists: dict[str, frozenset[str]]
    """Clips that each published list names, likewise without suffixes; lists that are missing have no key."""


def clip_files(source: str) -> list[Path]:
    """All files that `read_clips` may open: the archive or the clips of every word, and the lists."""
    path = Path(source)
    clips = [clip for folder in _words(path) for clip in _clips(folder)] if path.is_dir() else [path]
    return [*clips, *_list_files(path)]


def read_clips(source: Path, words: Sequence[str] | None) -> Clips:
    """Read and transform every clip of these words (None: all), on all cores, with a progress bar on a terminal.

    Raises InputError that names the file that is damaged, of another rate, stereo, empty or too long, the word that has
    no clips, or the archive that ends too early.
    """
    from rich.console import Console  # heavy
    from rich.progress import Progress
    from threadpoolctl import threadpool_limits

    available: set[str] = set()
    lists: dict[str, frozenset[str]] = {}
    features: dict[str, np.ndarray] = {}

    def wanted(word: str) -> bool:
        available.add(word)
        return words is None or word in words

    console = Console(stderr=True)
    with (
        Progress(console=console, disable=not console.is_terminal) as bar,
        ThreadPoolExecutor() as pool,  # threads: decoding, FFT and products run outside Python's lock
        threadpool_limits(1, "blas"),  # its own threads wait for each other: four times the CPU time
    ):
        files = _files(source, wanted, bar)
        while chunk := list(islice(files, _CHUNK)):
            clips = [file for file in chunk if file.name not in LISTS]
            lists |= {file.name: _listed(file) for file in chunk if file.name in LISTS}
            features |= zip([clip.name for clip in clips], pool.map(_features, clips), strict=True)
    if available:
        check_words(words, available, str(source))
    if not features:
        archive = min(source.glob("*.tar*"), default=None)
        hint = f"give the archive in it: {archive}" if archive else "give the folder or archive that does"
        raise InputError(str(source), f"holds no clips {_LAYOUT}", hint)
    names = sorted(features)
    return Clips(names, np.stack([features[name] for name in names]), lists)


def word_of(name: str) -> str:
    """`word/speaker_nohash_n` -> the word."""
    return name.partition("/")[0]


def speaker_of(name: str) -> str:
    """`word/speaker_nohash_n` -> the speaker."""
    return name.partition("/")[2].partition("_nohash_")[0]


def check_words(words: Sequence[str] | None, available: Collection[str], source: str) -> None:
    """Raises InputError where a word is named twice, or is not among those that the source has."""
    for word in words or ():
        if words.count(word) > 1:
            raise InputError("workload.words", f"{word!r} is named twice", "name every word once")
        if word not in available:
            raise InputError("workload.words", f"{word!r} is not in {source}", unknown_name(word, available))


def owners_of(names: Sequence[str], client_map: str | None) -> tuple[np.ndarray, str]:
    """[num_clips] int64 the owner of each clip, -1 where it has none, and a note on the number of those.

    The owner is the speaker, or the client in the CSV file `client_map`. Raises InputError where that cannot be read.
    """
    if client_map is None:
        return np.unique([speaker_of(name) for name in names], return_inverse=True)[1], ""
    table = read_table(client_map, f"workload.client_map = {client_map!r}")
    table.require("file", "client")
    clips = [file.rpartition(".")[0].replace("_", "/", 1) for file in table.texts("file")]
    clients = table.texts("client")
    client_of = dict(zip(clips, clients, strict=True))
    differs = [client_of[clip] != client for clip, client in zip(clips, clients, strict=True)]
    table.refuse("file", np.array(differs, dtype=bool), "has another client further down", "keep one of them")
    number = {client: i for i, client in enumerate(dict.fromkeys(clients))}
    owners = np.array([number.get(client_of.get(name, ""), -1) for name in names], dtype=np.int64)
    return owners, f"; {(owners < 0).sum():,} clips have no client"


def official_parts(clips: Clips, source: str) -> tuple[dict[str, np.ndarray], str]:
    """For both parts [num_clips] bool, which clips are in it after the published lists, and a note on listed clips
    that are absent. Raises InputError where there is no list of clips for testing."""
    if TESTING not in clips.lists:
        raise InputError(
            source, f"there is no {TESTING} in it or beside it", 'or set workload.split = "speaker"'
        )
    listed = {name: np.array([clip in clips.lists.get(name, ()) for clip in clips.names]) for name in LISTS}
    wanted = {word_of(name) for name in clips.names}
    named = sum(word_of(name) in wanted for names in clips.lists.values() for name in names)
    absent = named - sum(int(there.sum()) for there in listed.values())
    note = f"; {absent:,} listed clips are not there" if absent else ""
    return {"train": ~(listed[TESTING] | listed[VALIDATION]), "test": listed[TESTING]}, note


@dataclass(frozen=True)
class _File:
    """One clip or list, read."""

    place: str
    """Its path in messages."""
    name: str
    """`word/speaker_nohash_n` of a clip, the file's name of a list."""
    content: bytes


class _Header(tarfile.TarInfo):
    """A member's header. tarfile itself takes a damaged or missing header for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Header:
        """The next header. Raises ReadError where there is none before the archive's end mark."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _files(source: Path, wanted: Callable[[str], bool], bar: Progress) -> Iterator[_File]:
    """The clips of the wanted words, and the lists, of which those inside an archive come later and win."""
    try:
        for path in _list_files(source):
            yield _File(str(path), path.name, read_file(path))
        yield from (_of_folder if source.is_dir() else _of_archive)(source, wanted, bar)
    except OSError as error:
        place = str(error.filename or source)
        raise InputError(
            place, f"cannot be read ({error.strerror or error})", "check the path and permissions"
        ) from None


def _of_folder(source: Path, wanted: Callable[[str], bool], bar: Progress) -> Iterator[_File]:
    for folder in bar.track(_words(source), description=f"features of {source.name}"):
        for path in _clips(folder) if wanted(folder.name) else ():
            yield _File(str(path), _clip_name(str(path), folder.name, path.stem), read_file(path))


def _of_archive(source: Path, wanted: Callable[[str], bool], bar: Progress) -> Iterator[_File]:
    """Members in their order, read once and not unpacked: a compressed archive cannot be read out of order. Of two
    members of one path the later counts, as when an archive is unpacked."""
    try:
        with (
            bar.open(source, "rb", description=f"features of {source.name}") as raw,
            tarfile.open(fileobj=raw, tarinfo=_Header) as archive,
        ):
            for member in archive:
                yield from _of_member(source, archive, member, wanted)
            while archive.fileobj.read(2**20):
                pass  # gzip, bzip2 and xz compare their checksum when the end is reached
    except Exception as error:  # tarfile, gzip, bz2, lzma and zlib have no common base
        if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        problem = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(":")
        raise InputError(
            str(source),
            f"not a whole tar archive ({problem})",
            "copy or fetch the file again; tar is read plain or packed by gzip, bzip2 or xz",
        ) from None


def _of_member(
    source: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, wanted: Callable[[str], bool]
) -> Iterator[_File]:
    """The clip or the list that is this member, if it is one."""
    word, file = ("", "", *PurePosixPath(member.name).parts)[-2:]
    path, place = PurePosixPath(file), f"{source}: {member.name}"
    is_clip = path.suffix in SUFFIXES and word[:1] not in ("", "_", ".") and file[0] != "."
    if member.isdir() or not (file in LISTS or (is_clip and wanted(word))):
        return
    if not member.isreg():
        raise InputError(place, "is a link or a device", "pack the file itself: tar --dereference")
    name = _clip_name(place, word, path.stem) if is_clip else file
    yield _File(place, name, archive.extractfile(member).read())


def _words(source: Path) -> list[Path]:
    return sorted(path for path in source.iterdir() if path.is_dir() and path.name[0] not in "_.")


def _clips(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")


def _list_files(source: Path) -> list[Path]:
    """The published lists in the folder, or beside the archive."""
    folder = source if source.is_dir() else source.parent
    return [path for path in map(folder.joinpath, LISTS) if path.is_file()]


def _clip_name(place: str, word: str, stem: str) -> str:
    speaker, nohash, _ = stem.partition("_nohash_")
    if not (speaker and nohash):
        raise InputError(place, "the name says no speaker", f"clips are named {_LAYOUT}; rename or remove it")
    return f"{word}/{stem}"


def _listed(file: _File) -> frozenset[str]:
    """The clips that a list names, without their suffixes."""
    lines = map(str.strip, file.content.decode("utf-8", "replace").splitlines())
    return frozenset(line.rpartition(".")[0] for line in lines if line)


def _features(file: _File) -> np.ndarray:
    """[98, 40] float32. Clips shorter than a second are padded with zeros at their end; what is longer, or shorter than
    one window, is an error: it is not a clip of one word."""
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(file.content)) as sound:
            rate, channels, length = sound.samplerate, sound.channels, sound.frames
            samples = sound.read() if length <= SAMPLE_RATE else np.zeros(1)
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        reason = str(error).rpartition(": ")[2].rstrip(".") if file.content else "the file is empty"
        raise InputError(
            file.place, f"cannot be decoded ({reason})", "copy or fetch the file again, or remove it"
        ) from None
    for wrong, problem in (
        (rate != SAMPLE_RATE, f"{rate:,} samples a second, expected {SAMPLE_RATE:,}"),
        (channels != 1, f"{channels} channels, expected one"),
        (
            not WINDOW <= length <= SAMPLE_RATE,
            f"{length:,} samples, expected {WINDOW:,} to {SAMPLE_RATE:,} (30 ms to 1 s)",
        ),
        (len(samples) != length, f"ends after {len(samples):,} of {length:,} samples"),
        (
            not np.abs(samples).max(initial=0) <= MAX_AMPLITUDE,
            f"samples that are no numbers or above {MAX_AMPLITUDE}",
        ),
    ):
        if wrong:
            raise InputError(file.place, problem, "convert it, fetch it again, or remove it")
    return mfcc(samples)
