"""Speech Commands as it is published: word/speaker_nohash_n.wav (or .flac), in a folder or in a tar archive.

Two lists say which clips are for testing and for validation. They name .wav files and are matched without the suffix,
so clips that were converted keep their split. `_background_noise_`, and whatever else begins with _ or ., is no word.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

import numpy as np
import soundfile
from rich.console import Console
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file
from hpctrip.learn.data.archives import members
from hpctrip.learn.data.clips import LISTS, Clips, check_words
from hpctrip.learn.data.files import fingerprints
from hpctrip.learn.data.mfcc import SAMPLE_RATE, WINDOW, mfcc

SUFFIXES = (".wav", ".flac")
_LAYOUT = "<word>/<speaker>_nohash_<n>.wav (or .flac)"
MAX_CLIP_BYTES = 2**18
"""Of a clip's file: eight times one of Speech Commands."""
MAX_LIST_BYTES = 2**24
"""Of a list: forty times those of Speech Commands."""
MAX_AMPLITUDE = 100.0
"""Of a sample. Full scale is 1, which files of floating-point numbers may go beyond."""
_CHUNK = 2048  # files in memory at once: 64 MB, at most eight times that


def fingerprint(source: Path) -> dict[str, list[int]]:
    """What tells a changed source without opening its files: size and time of the archive and of the lists, or of the
    folder's folders (whose times tell that files came, went or were renamed, not that one was changed in place)."""
    if source.is_dir():
        paths = [path for path in source.iterdir() if path.is_dir() or path.name in LISTS]
    else:
        paths = [source, *(path for path in map(source.with_name, LISTS) if path.is_file())]
    return fingerprints(sorted(paths))


def clip_files(source: str) -> list[Path]:
    """All files that `read_clips` may open: the archive or the clips of every word, and the lists."""
    path = Path(source).expanduser()
    lists = [file for file in map((path if path.is_dir() else path.parent).joinpath, LISTS) if file.is_file()]
    if not path.is_dir():
        return [path, *lists]
    return [*(clip for folder in _words(path) for clip in _clips(folder)), *lists]


def read_clips(source: Path, words: Sequence[str] | None) -> Clips:
    """Read and transform every clip of these words (None: all), on all cores, with a progress bar on a terminal.

    Raises InputError that names the file that is damaged, of another rate, stereo, empty or too long, the word that has
    no clips, or the archive that ends too early.
    """
    seen: set[str] = set()
    lists: dict[str, frozenset[str]] = {}
    found: dict[str, np.ndarray] = {}
    places: dict[str, str] = {}
    files = _files(source, lambda word: seen.add(word) or words is None or word in words)
    console = Console(stderr=True)
    with (
        Progress(console=console, disable=not console.is_terminal) as bar,
        ThreadPoolExecutor() as pool,  # threads: decoding, FFT and products run outside Python's lock
        threadpool_limits(1, "blas"),  # its own threads wait for each other: four times the CPU time
    ):
        task = bar.add_task(f"features of {source.name}", total=1.0)
        while chunk := list(islice(files, _CHUNK)):
            clips = [file for file in chunk if file.name not in LISTS]
            lists |= {file.name: _listed(file) for file in chunk if file.name in LISTS}
            for clip, features in zip(clips, pool.map(_features, clips), strict=True):
                if places.setdefault(clip.name, clip.place) != clip.place:
                    raise InputError(
                        clip.place, f"is the same clip as {places[clip.name]}", "remove one of them"
                    )
                found[clip.name] = features
            bar.update(task, completed=chunk[-1].fraction)
    if seen:
        check_words(words, seen, str(source))
    if not found:
        archive = min(source.glob("*.tar*"), default=None)
        way_out = f"give the archive in it: {archive}" if archive else "give the folder or archive that does"
        raise InputError(str(source), f"holds no clips {_LAYOUT}", way_out)
    names = sorted(found)
    return Clips(names, np.stack([found[name] for name in names]), lists)


@dataclass(frozen=True)
class _File:
    """One clip or list, read."""

    place: str
    """How to speak of it."""
    name: str
    """`word/speaker_nohash_n` of a clip, the file's name of a list."""
    content: bytes
    fraction: float
    """Of the source, what has been read with it."""


def _files(source: Path, wanted: Callable[[str], bool]) -> Iterator[_File]:
    try:
        yield from _of_folder(source, wanted) if source.is_dir() else _of_archive(source, wanted)
    except OSError as error:
        place = str(error.filename or source)
        raise InputError(
            place, f"cannot be read ({error.strerror or error})", "check the path and permissions"
        ) from None


def _of_folder(source: Path, wanted: Callable[[str], bool]) -> Iterator[_File]:
    folders = _words(source)
    for done, folder in enumerate(folders, 1):
        if not wanted(folder.name):
            continue
        for path in _clips(folder):
            name = _clip_name(str(path), folder.name, path.stem)
            yield _File(str(path), name, read_file(path), done / len(folders))
    yield from _lists(source)


def _words(source: Path) -> list[Path]:
    return sorted(path for path in source.iterdir() if path.is_dir() and path.name[0] not in "_.")


def _clips(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")


def _of_archive(source: Path, wanted: Callable[[str], bool]) -> Iterator[_File]:
    """Members in their order, read once: a compressed archive cannot be read out of order. Lists may lie beside it;
    those inside come later and win. Of two members of one path the later counts, as when an archive is unpacked."""
    yield from _lists(source.parent)
    for member in members(source):
        word, file = ("", "", *PurePosixPath(member.name).parts)[-2:]
        place = f"{source}: {member.name}"
        is_clip = PurePosixPath(file).suffix in SUFFIXES and word[:1] not in ("", "_", ".") and file[0] != "."
        if file in LISTS:
            yield _File(place, file, member.content(MAX_LIST_BYTES), member.fraction)
        elif is_clip and wanted(word):
            name = _clip_name(place, word, PurePosixPath(file).stem)
            yield _File(place, name, member.content(MAX_CLIP_BYTES), member.fraction)


def _lists(folder: Path) -> Iterator[_File]:
    for path in map(folder.joinpath, LISTS):
        if path.is_file():
            yield _File(str(path), path.name, read_file(path), 0.0)


def _clip_name(place: str, word: str, stem: str) -> str:
    speaker, nohash, _ = stem.partition("_nohash_")
    if not (speaker and nohash):
        raise InputError(place, "the name says no speaker", f"clips are named {_LAYOUT}; rename or remove it")
    return f"{word}/{stem}"


def _listed(file: _File) -> frozenset[str]:
    return frozenset(
        line.strip().rpartition(".")[0]
        for line in file.content.decode("utf-8", "replace").splitlines()
        if line.strip()
    )


def _features(file: _File) -> np.ndarray:
    """[98, 40] float32. Clips shorter than a second are padded with zeros at their end; what is longer, or shorter than
    one window, is an error: it is not a clip of one word."""
    try:
        with soundfile.SoundFile(io.BytesIO(file.content)) as sound:
            rate, channels, length = sound.samplerate, sound.channels, sound.frames
            # what a header announces is not asked for before it is looked at
            right = rate == SAMPLE_RATE and channels == 1 and WINDOW <= length <= SAMPLE_RATE
            samples = sound.read(dtype="float64") if right else np.zeros(0)
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
    ):
        if wrong:
            raise InputError(file.place, problem, "convert it, or remove it")
    if len(samples) != length:
        raise InputError(
            file.place,
            f"ends after {len(samples):,} of {length:,} samples",
            "fetch the file again, or remove it",
        )
    if not np.abs(samples).max() <= MAX_AMPLITUDE:
        raise InputError(file.place, f"samples that are no numbers or above {MAX_AMPLITUDE}", "remove it")
    return mfcc(samples)
