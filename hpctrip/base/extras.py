"""The packages that only a part of hpctrip needs, the extras of setup.py, and how a missing one is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hpctrip.base.errors import InputError


def how_to_install(extra: str) -> str:
    """The command that brings the packages of an extra: of the installed package, or in a checkout of the sources."""
    is_checkout = Path(__file__).parents[2].joinpath("setup.py").is_file()
    return f"pip install -e '.[{extra}]'" if is_checkout else f"pip install 'hpctrip[{extra}]'"


def require(place: str, extra: str, *packages: str) -> None:
    """Raise InputError that names `place` where one of these packages of the extra is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(place, f"{' and '.join(missing)} not installed", how_to_install(extra))
