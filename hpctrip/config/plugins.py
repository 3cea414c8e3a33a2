"""User code that registers components: plug-ins (Python files) and installed packages.

Code runs only if the command names it (in an input file, a `-o` line or an option) or if it is installed. Plug-ins that
a results file or checkpoint records are compared by digest and never run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator

from hpctrip.base.errors import PLUGIN_MODULE, InputError, cause
from hpctrip.base.io import digest, named_path, read_file
from hpctrip.base.rng import same_draws
from hpctrip.base.text import unknown_name
from hpctrip.config.beside import FOUND, execute, installed_only, modules_beside, offer, package_of
from hpctrip.config.inputs import Tables
from hpctrip.config.sources import PLUGINS, Source, code_name

GROUP = "hpctrip.components"
"""The entry points of installed packages: each names a module whose import registers components."""


@contextmanager
def user_code(place: str, problem: str, hint: str = "") -> Iterator[None]:
    """Run user code, any exception of which is an InputError; how it lets numpy handle errors concerns it alone."""
    try:
        with np.errstate():
            yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ImportError):
            own = (error.name or "").startswith("hpctrip.")
            hint = "import from hpctrip.api, whose names do not move" if own else hint or FOUND
        raise InputError(place, f"{problem}: {cause(error)}", hint) from None


@dataclass(frozen=True)
class Plugin:
    """A Python file as read, so that every rank runs the code that was hashed."""

    path: str
    code: bytes
    modules: Mapping[str, bytes] = field(default_factory=dict)
    """{path relative to its folder: content} of the modules beside it that it imports (`modules_beside`)."""

    @classmethod
    def read(cls, path: str) -> Plugin:
        """Read a plug-in without running it. Raises InputError where it is not a Python file."""
        place = f"plugins: {path!r}"
        file = named_path(path, place)
        code = read_file(file, place)
        if file.suffix != ".py":
            raise InputError(place, "not a Python file", "its name must end in .py")
        return cls(path, code, modules_beside(file, code))

    @property
    def source(self) -> Source:
        """Its entry in the record of a run. The digest is that of the file; with modules beside it, that of lines
        `digest  path`, the plug-in's own without a path."""
        if not self.modules:
            return Source(PLUGINS, self.path, digest(self.code))
        lines = [f"{digest(code)}  {path}\n" for path, code in {"": self.code, **self.modules}.items()]
        return Source(PLUGINS, self.path, digest("".join(lines).encode("utf-8", "surrogateescape")))

    def run(self) -> None:
        """Execute the code, which registers its classes. Raises InputError where that fails."""
        file = os.path.expanduser(self.path)
        module = ModuleType(_module_name(file))
        module.__file__ = file
        # where pydantic looks up annotations and docstrings of the file's classes, and `named_code` the newest
        sys.modules.pop(module.__name__, None)
        sys.modules[module.__name__] = module
        with same_draws(), installed_only(), user_code(f"plugins: {self.path!r}", "fails when imported"):
            execute(module, self.code, package_of(file))


def _module_name(file: str) -> str:
    """Named after the path: files of one name in two folders are two modules."""
    return f"{PLUGIN_MODULE}{Path(file).stem}_{digest(os.path.realpath(file).encode())[:8]}"


def _is_code_name(value: str) -> str:
    if code_name(value) is None:
        raise ValueError(f"{value!r} is not of the form file.py:Name")
    return value


def without_folders(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an input in which code, `folder/file.py:Name`, is named without its folder: where it lies changes
    no result, and its content is compared by digest."""
    named = {key: code_name(value) for key, value in values.items()}
    code = {key: f"{os.path.basename(name[0])}:{name[1]}" for key, name in named.items() if name}
    return {**values, **code}


CodeName = Annotated[str, AfterValidator(_is_code_name)]
"""Type of an input key that names code, `file.py:Name`: a class or function of a plug-in."""


def with_code_paths(tables: Tables, move: Callable[[str], str]) -> Tables:
    """Tables in which `move` has replaced the paths of plug-ins and of the keys `file.py:Name`. Values of other types
    stay as they are: validation refuses them."""
    moved = dict(tables)
    if isinstance(plugins := tables.get("plugins"), list):
        moved["plugins"] = [move(path) if isinstance(path, str) else path for path in plugins]
    if isinstance(workload := tables.get("workload"), dict):
        code = {key: named for key, value in workload.items() if (named := code_name(value))}
        moved["workload"] = workload | {key: f"{move(file)}:{name}" for key, (file, name) in code.items()}
    return moved


def named_code(value: str, key: str) -> Any:
    """The class or function that the key of an input names. Its file has run as a plug-in, from the same path or, where
    a run is resumed elsewhere, from another one with this file name. InputError where it has not, or lacks the name."""
    file, name = code_name(value) or ("", "")
    file = os.path.expanduser(file)
    module = sys.modules.get(_module_name(file)) or _of_same_name(Path(file))
    if module is None:
        raise InputError(
            f"{key} = {value!r}", "is code that was not named as a plug-in", f"give --plugin {file}"
        )
    if not callable(code := getattr(module, name, None)):
        names = [each for each in vars(module) if not each.startswith("_")]
        raise InputError(f"{key} = {value!r}", f"the file has no {name!r}; {unknown_name(name, names)}")
    return code


def _of_same_name(file: Path) -> ModuleType | None:
    """The plug-in of this file name whose path ends most alike; of several, the one that ran last."""
    form = re.compile(rf"{PLUGIN_MODULE}{re.escape(file.stem)}_[0-9a-f]{{8}}")

    def shared(module: ModuleType) -> int:
        pairs = zip(reversed(file.parts), reversed(Path(str(module.__file__)).parts), strict=False)
        return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])

    named = [module for name, module in sys.modules.items() if form.fullmatch(name)]
    return max(reversed(named), key=shared, default=None)


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
        hint = f"fix it, or remove it: pip uninstall {self.name}"
        with user_code(f"installed package {self}", "its components cannot be imported", hint):
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
        for plugin in self.plugins:
            offer(plugin.path, plugin.modules)
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
