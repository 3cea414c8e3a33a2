"""Plug-ins: Python files of the user's own that register components. They are code, so only the user names them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from hpctrip.base.errors import InputError
from hpctrip.base.files import named_path


def import_plugin(path: str) -> None:
    """Import the file, whose classes register themselves. InputError where that fails."""
    place = f"plugins: {path!r}"
    if not named_path(path, place).is_file():
        raise InputError(place, "no such file", "give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"hpctrip_plugin_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(place, "not a Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # where pydantic looks up annotations and docstrings of the file's classes
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        cause = " ".join(str(error).split())
        raise InputError(place, f"fails when imported: {type(error).__name__}: {cause}") from None
