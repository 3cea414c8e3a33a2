"""User code that registers components: plug-ins (Python files) and installed packages.

Code runs only if the command names it (in an input file, a `-o` line or an option) or if it is installed. Plug-ins that
a results file or checkpoint records are compared by digest and never run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator

from hpctrip.base.errors import PLUGIN_MODULE, InputError, cause
from hpctrip.base.io import digest, named_path, read_file
from hpctrip.base.text import unknown_name
from hpctrip.config.sources import PLUGINS, Source

GROUP = "hpctrip.components"
"""The entry points of installed packages: each names a module whose import registers components."""


@contextmanager
def user_code(place: str, problem: str, way_out: str = "") -> Iterator[None]:
    """Run user code, any exception of which is an InputError."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("hpctrip."):
            way_out = "import from hpctrip.api, whose names do not move"
        raise InputError(place, f"{problem}: {cause(error)}", way_out) from None


@dataclass(frozen=True)
class Plugin:
    """A Python file as read, so that every rank runs the code that was hashed."""

    path: str
    code: bytes

    @classmethod
    def read(cls, path: str) -> Plugin:
        """Read a plug-in without running it. Raises InputError where it is not a Python file."""
        place = f"plugins: {path!r}"
        file = named_path(path, place)
        code = read_file(file, place)
        if file.suffix != ".py":
            raise InputError(place, "not a Python file", "its name must end in .py")
        return cls(path, code)

    @property
    def source(self) -> Source:
        """Its entry in the record of a run."""
        return Source(PLUGINS, self.path, digest(self.code))

    def run(self) -> None:
        """Execute the code, which registers its classes. Raises InputError where that fails."""
        file = os.path.expanduser(self.path)
        module = ModuleType(_module_name(file))
        module.__file__ = file
        # where pydantic looks up annotations and docstrings of the file's classes
        sys.modules[module.__name__] = module
        with user_code(f"plugins: {self.path!r}", "fails when imported"):
            # not through an import: that would take a compiled file that lies beside it
            exec(compile(self.code, module.__file__, "exec", dont_inherit=True), module.__dict__)


def _module_name(file: str) -> str:
    """Named after the path: files of one name in two folders are two modules."""
    return f"{PLUGIN_MODULE}{Path(file).stem}_{digest(os.path.realpath(file).encode())[:8]}"


def code_name(value: object) -> tuple[str, str] | None:
    """(file, name) of a text `file.py:Name`; None for any other value."""
    match = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", value) if isinstance(value, str) else None
    return (match[1], match[2]) if match else None


def _is_code_name(value: str) -> str:
    if code_name(value) is None:
        raise ValueError(f"{value!r} is not of the form file.py:Name")
    return value


CodeName = Annotated[str, AfterValidator(_is_code_name)]
"""Type of an input key that names code, `file.py:Name`: a class or function of a plug-in."""


def named_code(value: str, key: str) -> Any:
    """The class or function that the key of an input names. Its file has run as a plug-in, from the same path or, where
    a run is resumed elsewhere, from another one. InputError where it has not, or has no such name."""
    file, name = code_name(value) or ("", "")
    file = os.path.expanduser(file)
    same_name = [m for m in sys.modules if m.startswith(f"{PLUGIN_MODULE}{Path(file).stem}_")]
    module = sys.modules.get(_module_name(file)) or (sys.modules[same_name[-1]] if same_name else None)
    if module is None:
        raise InputError(
            f"{key} = {value!r}", "is code that was not named as a plug-in", f"give --plugin {file}"
        )
    if not callable(code := getattr(module, name, None)):
        names = [each for each in vars(module) if not each.startswith("_")]
        raise InputError(f"{key} = {value!r}", f"the file has no {name!r}; {unknown_name(name, names)}")
    return code


@dataclass(frozen=True)
class Package:
    """An installed package that adds components."""

    name: str
    version: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def run(self) -> None:
        """Import its modules, which register their classes. Raises InputError where that fails."""
        way_out = f"fix it, or remove it: pip uninstall {self.name}"
        with user_code(f"installed package {self}", "its components cannot be imported", way_out):
            for module in self.modules:
                metadata.EntryPoint(self.name, module, GROUP).load()


@dataclass(frozen=True)
class Extensions:
    """All user code of a command."""

    plugins: tuple[Plugin, ...] = ()
    packages: tuple[Package, ...] = ()

    @classmethod
    def of(cls, paths: Iterable[str]) -> Extensions:
        """The named plug-ins and the installed packages, not yet run. Raises InputError."""
        return cls(tuple(map(Plugin.read, paths)), installed())

    def run(self) -> None:
        """Run all of it. Raises InputError that names the plug-in or package that fails."""
        for extension in (*self.packages, *self.plugins):
            extension.run()


NO_EXTENSIONS = Extensions()


def installed() -> tuple[Package, ...]:
    """The installed packages that add components, sorted. The working directory, which `python -m` searches too, is
    left out."""
    here = os.getcwd()
    path = [folder for folder in sys.path if folder and os.path.abspath(folder) != here]
    packages: dict[str, Package] = {}
    for distribution in metadata.distributions(path=path):
        if GROUP in (distribution.read_text("entry_points.txt") or ""):
            modules = tuple(entry.value for entry in distribution.entry_points if entry.group == GROUP)
            name = distribution.metadata["Name"]
            # the first one counts, as for imports
            packages.setdefault(name, Package(name, distribution.version, modules))
    return tuple(packages[name] for name in sorted(packages))
