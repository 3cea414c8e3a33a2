"""Modules that lie beside a plug-in: found by its import statements, read with it, and imported from the bytes as read.

They get names of their own, so that files of one name in two folders are two modules, and a program that calls hpctrip
keeps its own modules. Everything else that a plug-in imports must be installed: what is found because of the working
folder would be part of no digest, and the two ways to start hpctrip would find different modules.
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

from hpctrip.base.errors import PLUGIN_MODULE, InputError
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
    package, folder = package_of(file), folder_of(file)
    for path, code in {_PACKAGE: b"", **modules}.items():
        name = ".".join([package, *Path(path.removesuffix(_PACKAGE).removesuffix(".py")).parts])
        _importer.sources[name] = (str(folder / path), code)
        sys.modules.pop(name, None)


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
    """Leave the working folder out of Python's search path."""
    here = os.getcwd()
    left_out = [folder for folder in sys.path if not folder or os.path.abspath(folder) == here]
    sys.path[:] = [folder for folder in sys.path if folder not in left_out]
    try:
        yield
    finally:
        sys.path[:0] = left_out


@contextmanager
def nothing_unread(place: str) -> Iterator[None]:
    """Raise InputError where the body imports modules from a folder that it adds to Python's search path, unless it is
    one of this Python: they are part of no digest. The folder is taken out again."""
    modules, folders, added = {*sys.modules}, {*sys.path}, set[str]()
    try:
        yield
    finally:
        added |= {each for each in sys.path if each not in folders and not _inside(each, sys.prefix)}
        sys.path[:] = [folder for folder in sys.path if folder not in added]
    for name in [each for each in sys.modules if each not in modules]:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if any(_inside(file, folder) for folder in added):
            problem = f"imports {name} from {os.path.dirname(file)}, a folder that it adds to sys.path"
            raise InputError(place, problem, f"{FOUND}: put it beside the plug-in, or install it")


def _inside(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)
