"""Modules that lie beside a plug-in: found by its import statements, read with it, and imported from the bytes as read.

They have names of their own, so that files of one name in two folders are two modules, and a program that calls
hpctrip keeps its own. Everything else that a plug-in imports must be installed: no digest holds what lies in the
working folder, or in one that a plug-in adds to sys.path.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from hpctrip.base.errors import PLUGIN_MODULE
from hpctrip.base.io import digest, read_file

FOUND = "a plug-in imports modules that lie beside it, by their names, and installed ones"
_PACKAGE = "__init__.py"


def modules_beside(file: str | Path, code: bytes) -> dict[str, bytes]:
    """{path relative to the folder of the plug-in `file`: content} of the modules there, and in packages there, that
    its code imports or that one of these imports. A package without an `__init__.py` gets an empty one."""
    folder, found, left = folder_of(file), dict[str, bytes](), [("", code)]
    while left:
        package, code = left.pop()
        for name in _imported(code, package):
            for path in _files(folder, name):
                if path not in found:
                    found[path] = read_file(folder / path) if (folder / path).is_file() else b""
                    left.append((".".join(Path(path).parent.parts), found[path]))
    return dict(sorted(found.items()))


def folder_of(file: str | Path) -> Path:
    """The folder in which a plug-in lies; links are followed, as Python does for a script."""
    return Path(os.path.realpath(os.path.expanduser(file))).parent


def _imported(code: bytes, package: str) -> Iterator[str]:
    """The dotted names that the import statements of a module of `package` may import, wherever they are."""
    try:
        nodes = [*ast.walk(ast.parse(code))]
    except (SyntaxError, ValueError):  # reported when the code is run
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # relative, beyond the plug-in's folder
                module = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{module}.{alias.name}" for alias in node.names)


def _files(folder: Path, name: str) -> list[str]:
    """The files of the packages and of the module that a dotted name leads to in the folder; empty for one that Python
    or hpctrip brings along."""
    parts, files = name.split("."), []
    if parts[0] in sys.stdlib_module_names or parts[0] == "hpctrip":
        return []
    for end in range(1, len(parts) + 1):
        stem = "/".join(parts[:end])
        paths = [path for path in (f"{stem}/{_PACKAGE}", f"{stem}.py") if (folder / path).is_file()]
        if not paths and not (folder / stem).is_dir():
            break
        files.append((paths or [f"{stem}/{_PACKAGE}"])[0])
    while files and not (folder / files[-1]).is_file():  # a folder that holds no such module
        files.pop()
    return files


class _Importer(MetaPathFinder, Loader):
    """Finds and loads the modules beside plug-ins, for Python's import system."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[str, bytes]] = {}
        """{name of the module: (its file, its code)}."""
        self.installed: list[str] = []
        """Python's search path, without the working folder and what plug-ins add."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """The module, where it is one of these."""
        if fullname not in self.sources:
            return None
        file = self.sources[fullname][0]
        spec = ModuleSpec(fullname, self, origin=file, is_package=file.endswith(_PACKAGE))
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run its code."""
        execute(module, self.sources[module.__name__][1], module.__name__.partition(".")[0])


_importer = _Importer()
sys.meta_path.insert(0, _importer)


def package_of(file: str | Path) -> str:
    """Name of the package that the modules beside a plug-in form."""
    return f"{PLUGIN_MODULE}{digest(os.fsencode(folder_of(file)))[:8]}"


def offer(file: str | Path, modules: Mapping[str, bytes]) -> None:
    """Let a plug-in, and others in its folder, import these modules beside it, anew where they were imported before."""
    here = os.getcwd()
    for path, code in {_PACKAGE: b"", **modules}.items():
        parts = Path(path.removesuffix(_PACKAGE).removesuffix(".py")).parts
        _importer.sources[name := ".".join([package_of(file), *parts])] = (str(folder_of(file) / path), code)
        sys.modules.pop(name, None)
    _importer.installed = [path for path in sys.path if path and os.path.abspath(path) != here]


def execute(module: ModuleType, code: bytes, package: str) -> None:
    """Run code as a module. Its import statements, at any time, find the modules of `package` first."""

    def importing(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        beside = f"{package}.{name}"
        top = ".".join(beside.split(".")[:2])
        if level == 0 and top in _importer.sources:
            found = __import__(beside, globals, locals, fromlist)
            return found if fromlist else sys.modules[top]
        with installed_only():
            return __import__(name, globals, locals, fromlist, level)

    module.__dict__["__builtins__"] = vars(builtins) | {"__import__": importing}
    # not through an import: that would take a compiled file that lies beside it
    exec(compile(code, str(module.__file__), "exec", dont_inherit=True), module.__dict__)


@contextmanager
def installed_only() -> Iterator[None]:
    """Let Python find only what is installed. Of folders added to its search path, only those of its own stay."""
    before, installed = [*sys.path], _importer.installed
    sys.path[:] = installed
    try:
        yield
    finally:
        added = [path for path in sys.path if path not in before and path.startswith(sys.prefix)]
        sys.path[:] = [*before, *added]
