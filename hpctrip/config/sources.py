"""The files that an input names, and the digests by which a run records what it read.

A field whose value names files says so in its type, `path: Annotated[str, Reads()]`. Whoever asks for the files of an
input (the record of a run, a replay, a check) walks the fields, so a new component is covered by its own declaration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import beside, digest, digest_of_file, matching, named_path
from hpctrip.config.component import Component, NamedTables, Registry, owner_of, walk
from hpctrip.config.inputs import Tables, deep, nested

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

    unless: tuple[str, ...] = ()
    """The values that name no file: what they stand for is made here."""
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
        if mark and value not in (None, *mark.unless):
            yield NamedFiles(key, value, mark.find)


def code_name(value: object) -> tuple[str, str] | None:
    """(file, name) of a text `file.py:Name`; None for any other value."""
    match = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", value) if isinstance(value, str) else None
    return (match[1], match[2]) if match else None


def file_values(tables: Tables, owner: Any, prefix: str = "") -> Iterator[tuple[str, str, list[Reads]]]:
    """(dotted key, value, marks) of every text in the tables of one layer of an input that may name files. `owner` is
    that of the tables (`owner_of`). A layer need not name its kinds: then all that there are count."""
    if isinstance(owner, NamedTables):
        for name, table in tables.items():
            yield from file_values({"kind": name} | table, owner.registry, f"{prefix}{name}.")
        return
    classes = [owner]
    if isinstance(owner, Registry):
        classes = [owner[kind]] if (kind := tables.get("kind")) in owner else list(owner.values())
    for key, value in tables.items():
        fields = [cls.model_fields[key] for cls in classes if key in cls.model_fields]
        if isinstance(value, dict):
            for inner in {id(of): of for field in fields if (of := owner_of(field))}.values():
                yield from file_values(value, inner, f"{prefix}{key}.")
        elif isinstance(value, str) and code_name(value) is None:
            marks = [mark for field in fields for mark in field.metadata if isinstance(mark, Reads)]
            if marks and not any(value in mark.unless for mark in marks):
                yield prefix + key, value, marks


def seen_from_here(tables: Tables, folder: str, owner: Any) -> Tables:
    """The tables of a file in `folder`, in which the paths of files that lie there are relative to the working folder;
    other paths are so already."""
    for key, value, _ in [*file_values(tables, owner)] if folder else ():
        with suppress(InputError):  # its key is named where it is read
            if matching(path := beside(folder, value)):
                tables = deep(tables, nested(key, path))
    return tables


def missing_files(tables: Tables, folder: str, owner: Any) -> Iterator[tuple[str, Fault]]:
    """(dotted key, fault) of every path in the tables of a file in `folder` that is neither there nor in the working
    folder. Data sets that can be fetched or made are left out: their readers tell how."""
    for key, value, marks in file_values(tables, owner) if folder else ():
        with suppress(InputError):
            if not (matching(value) or any(mark.unless for mark in marks)):
                here = f"the working folder, {os.getcwd()}"
                problem = f"is neither in {folder}, the folder of the input file, nor in {here}"
                yield key, Fault(f"{key} = {value!r}", problem, "check the path")


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
