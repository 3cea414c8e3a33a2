"""The files that an input names, and the digests by which a run records what it read.

A field whose value names files says so in its type, `path: Annotated[str, Reads()]`. Whoever asks for the files of an
input (the record of a run, a replay, a check) walks the fields, so a new component is covered by its own declaration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import digest, digest_of_file, named_path
from hpctrip.config.component import Component, walk

MADE_HERE = "-"
"""The path of a source that is no file: synthetic data, made from the input."""
PLUGINS = "plugins"
"""The key of the sources that are code."""
CHANGED = "bring back the file that the run read, or start a new run"
"""The hint where a file has changed."""


class Source(NamedTuple):
    """A file, a set of files, or prepared data that a run read."""

    key: str
    """The dotted input key that names it."""
    path: str
    """The path as the input names it, or MADE_HERE."""
    digest: str
    """Digest of a file as by `b2sum -l 128`; for several, see `digest_of_files`; for prepared data, the workload."""

    def __str__(self) -> str:
        return f"{self.key} {self.path} blake2b:{self.digest}"


def read_sources(texts: Iterable[str]) -> list[Source]:
    """The sources of texts as `str(source)` makes them."""
    form = re.compile(r"([\w.]+) (.*) blake2b:([0-9a-f]+)", re.DOTALL)
    return [Source(*form.fullmatch(text).groups()) for text in texts]


def changed_sources(recorded: Iterable[Source], current: Iterable[Source]) -> list[tuple[Source, Source]]:
    """(recorded, current) of every input key whose files, named in both, have other contents now. Plug-ins are left
    out: several have one key."""
    now = {source.key: source for source in current if source.key != PLUGINS}
    pairs = ((before, now[before.key]) for before in recorded if before.key in now)
    return [(before, after) for before, after in pairs if before.digest != after.digest]


def files_at(value: str) -> list[Path]:
    """The file of this path, or the files that lie in the folder, sorted."""
    return files_in(named_path(value, value))


def files_in(path: Path) -> list[Path]:
    """The file itself, or the files that lie in the folder, sorted."""
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]


@dataclass(frozen=True)
class Reads:
    """Marks a field whose value is a path that the component reads; None reads nothing."""

    unless: str | None = None
    """The value that names no file: such data are made here."""
    find: Callable[[str], list[Path]] = files_at
    """All files that are opened for a value; raises InputError where there are none."""


class NamedFiles(NamedTuple):
    """An input key that names files."""

    key: str
    value: str
    find: Callable[[str], list[Path]]

    def source(self, of: Callable[[Sequence[Path]], str] | None = None) -> Source:
        """The files as they are now, by the digest `of` them (default: digest_of_files). Raises InputError where they
        cannot be read, or there are none."""
        if not (files := self.find(self.value)):
            raise InputError(f"{self.key}: {self.value}", "no such file or folder", "check the path")
        return Source(self.key, self.value, (of or digest_of_files)(files))


def named_files(component: Component, prefix: str = "") -> Iterator[NamedFiles]:
    """Every key of this input, in the order of its tables, whose value names files."""
    for key, field, value in walk(component, prefix):
        mark = next((item for item in field.metadata if isinstance(item, Reads)), None)
        if mark and value not in (None, mark.unless):
            yield NamedFiles(key, value, mark.find)


def digest_of_files(files: Sequence[Path]) -> str:
    """The digest of a file; of several, that of lines `digest  name` as `b2sum -l 128` prints them in the folder that
    they share. InputError names the file that cannot be read."""
    digests = [digest_of_file(file) for file in files]
    if len(digests) == 1:
        return digests[0]
    paths = [file.absolute() for file in files]
    folder = os.path.commonpath([path.parent for path in paths]) if paths else ""
    names = [path.relative_to(folder).as_posix() for path in paths]
    lines = (f"{content}  {name}\n" for content, name in zip(digests, names, strict=True))
    return digest("".join(lines).encode("utf-8", "surrogateescape"))


def refuse_changed(recorded: Iterable[Source], current: Iterable[Source], place: object) -> list[str]:
    """Raise InputError naming every file whose content is not the one recorded at `place`. Data that were made from
    the input, by this machine's libraries, may differ: returns a warning for each."""
    pairs = changed_sources(recorded, current)
    faults = [
        Fault(now.key, f"{now.path} has the digest {now.digest}, in {place} it has {before.digest}", CHANGED)
        for before, now in pairs
        if now.path != MADE_HERE
    ]
    if faults:
        raise InputError(faults=faults)
    return [
        f"warning: the data of {now.key}, made here, have the digest {now.digest}, not {before.digest}: "
        "the numbers may differ"
        for before, now in pairs
    ]
