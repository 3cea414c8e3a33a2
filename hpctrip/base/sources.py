"""The files that an input names, and the digests by which a run records what it read.

A field whose value names files has the type `Annotated[str, Reads()]`. The record of a run, a replay and a check find
the files of an input by walking its fields, so a new component is covered by its own declaration.

An input that was found in a file is a stranger's: of the files that it names only those are opened whose digests that
file records (`refuse_unknown`). Such a file tells nothing that its writer did not know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpctrip.base.component import Component
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import digest, digest_of_file, named_path

MADE_HERE = "-"
"""The path of a source that is no file: synthetic data, made from the input."""
PLUGINS = "plugins"
"""The key of the sources that are code."""


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


def read_sources(texts: object, place: object) -> list[Source]:
    """The sources whose texts, `str(source)`, are stored in a file at `place`. InputError where they are none."""
    form = re.compile(r"([\w.]+) (.*) blake2b:([0-9a-f]+)", re.DOTALL)
    found = [form.fullmatch(str(text)) for text in (texts if isinstance(texts, list) else [texts])]
    if not all(found):
        raise InputError(str(place), "does not say clearly what its run read", "restore a copy")
    return [Source(*match.groups()) for match in found if match]


def differing(recorded: Iterable[Source], found: Iterable[Source]) -> list[tuple[Source, Source]]:
    """(recorded, found) of every input key whose files, named in both, have other contents now. Plug-ins are left
    out: several have one key."""
    now = {source.key: source for source in found if source.key != PLUGINS}
    pairs = ((before, now[before.key]) for before in recorded if before.key in now)
    return [(before, after) for before, after in pairs if before.digest != after.digest]


def is_pattern(text: str) -> bool:
    """Whether a path, or a part of one, is a pattern of names."""
    return any(mark in text for mark in "*?[")


def files_at(value: str) -> list[Path]:
    """The file of this path, or the files that lie in the folder, sorted."""
    path = named_path(value, value)
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
        cannot be read."""
        return Source(self.key, self.value, (of or digest_of_files)(self.find(self.value)))

    def digest(self, of: Callable[[Sequence[Path]], str]) -> str:
        """The digest `of` all files that are opened; empty where one of them cannot be read."""
        try:
            return of(self.find(self.value))
        except (InputError, OSError):
            return ""


def named_files(component: Component, prefix: str = "") -> Iterator[NamedFiles]:
    """Every key of this input, in the order of its tables, whose value names files."""
    for name, field in type(component).model_fields.items():
        value = getattr(component, name)
        mark = next((item for item in field.metadata if isinstance(item, Reads)), None)
        if mark and value not in (None, mark.unless):
            yield NamedFiles(prefix + name, value, mark.find)
        elif isinstance(value, Component):
            yield from named_files(value, f"{prefix}{name}.")


def digest_of_files(files: Sequence[Path]) -> str:
    """The digest of a file; of several, that of lines `digest  name` as `b2sum -l 128` prints them in the folder that
    they share. InputError names the file that cannot be read."""
    digests = [digest_of_file(file) for file in files]
    if len(digests) == 1:
        return digests[0]
    paths = [file.absolute() for file in files]
    folder = os.path.commonpath([path.parent for path in paths]) if paths else ""
    lines = (
        f"{found}  {path.relative_to(folder).as_posix()}\n"
        for found, path in zip(digests, paths, strict=True)
    )
    return digest("".join(lines).encode("utf-8", "surrogateescape"))


def refuse_unknown(
    named: Iterable[NamedFiles],
    recorded: Iterable[Source],
    place: object,
    of: Callable[[Sequence[Path]], str] = digest_of_files,
    way_out: str = "",
) -> None:
    """Raise InputError for every one of the files, named by the input that was found at `place`, that is not what is
    `recorded` there, by the digest `of` files. Nothing of it is told but the path; `way_out` says what else to do than
    to bring it back."""
    known = {(source.key, source.digest) for source in recorded}
    keys = {key for key, _ in known}
    faults = [
        Fault(
            file.key,
            f"{file.value} is not what {place} says its run read, and for a found file nothing else is opened",
            f"bring it back{way_out}",
        )
        for file in named
        if file.key not in keys or (file.key, file.digest(of)) not in known
    ]
    if faults:
        raise InputError(faults=faults)
