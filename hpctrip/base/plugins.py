"""Code of the user's own, which registers components: plug-ins, which are Python files, and installed packages.

Code runs only because the user named it in this very command (an input file of theirs, a line, an option) or installed
it. What a results file or a checkpoint says of plug-ins is compared, by digest, and never run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from hpctrip.base.errors import InputError, cause
from hpctrip.base.io import digest, named_path, read_file
from hpctrip.base.sources import PLUGINS, Source

GROUP = "hpctrip.components"
"""The entry points of installed packages: each names a module whose import registers components."""


@dataclass(frozen=True)
class Plugin:
    """A Python file as it was read: what runs is what the digest is of, on every rank."""

    path: str
    code: bytes

    @classmethod
    def read(cls, path: str) -> Plugin:
        """Read, not run. Raises InputError where it is no Python file."""
        place = f"plugins: {path!r}"
        file = named_path(path, place)
        code = read_file(file, place)
        if file.suffix != ".py":
            raise InputError(place, "not a Python file", "its name must end in .py")
        return cls(path, code)

    @property
    def source(self) -> Source:
        """How it is recorded."""
        return Source(PLUGINS, self.path, digest(self.code))

    def run(self) -> None:
        """Run it, so that its classes register themselves. Raises InputError where that fails."""
        module = ModuleType(f"hpctrip_plugin_{Path(self.path).stem}")
        module.__file__ = str(Path(self.path).expanduser())
        # where pydantic looks up annotations and docstrings of the file's classes
        sys.modules[module.__name__] = module
        try:
            # not through an import: that would take a compiled file that lies beside it
            exec(compile(self.code, module.__file__, "exec", dont_inherit=True), module.__dict__)
        except (Exception, SystemExit) as error:
            raise InputError(f"plugins: {self.path!r}", f"fails when imported: {cause(error)}") from None


@dataclass(frozen=True)
class Package:
    """An installed package that adds components."""

    name: str
    version: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def run(self) -> None:
        """Import its modules, so that their classes register themselves. Raises InputError where that fails."""
        for module in self.modules:
            try:
                metadata.EntryPoint(self.name, module, GROUP).load()
            except (Exception, SystemExit) as error:
                raise InputError(
                    f"installed package {self}",
                    f"its components cannot be imported: {cause(error)}",
                    f"mend it, or remove it: pip uninstall {self.name}",
                ) from None


@dataclass(frozen=True)
class Extensions:
    """All code that a command adds to hpctrip's own."""

    plugins: tuple[Plugin, ...] = ()
    packages: tuple[Package, ...] = ()

    @classmethod
    def of(cls, paths: Iterable[str]) -> Extensions:
        """The plug-ins that the user named, and what is installed: read, not run. Raises InputError."""
        return cls(tuple(map(Plugin.read, paths)), installed())

    def run(self) -> None:
        """Run all of it. Raises InputError naming what fails."""
        for extension in (*self.packages, *self.plugins):
            extension.run()


NO_EXTENSIONS = Extensions()


def installed() -> tuple[Package, ...]:
    """The installed packages that add components, sorted. The working directory, which `python -m` searches too, is
    left out: nobody installed what lies there."""
    here = os.getcwd()
    path = [folder for folder in sys.path if folder and os.path.abspath(folder) != here]
    found: dict[str, Package] = {}
    for distribution in metadata.distributions(path=path):
        if GROUP in (distribution.read_text("entry_points.txt") or ""):
            modules = tuple(entry.value for entry in distribution.entry_points if entry.group == GROUP)
            name = distribution.metadata["Name"]
            found.setdefault(
                name, Package(name, distribution.version, modules)
            )  # as for imports, the first counts
    return tuple(found[name] for name in sorted(found))
