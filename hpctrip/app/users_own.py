"""Tables of an input that a found file does not decide: what runs code, writes, connects or sets a machine is the
user's own, given in the command or in their input files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from hpctrip.app.experiment import Input
from hpctrip.base.inputs import Tables, inline_toml
from hpctrip.base.sources import PLUGINS

WRITES = ("callbacks", "store", "knobs")
"""Where files and databases are written and servers are told; a folder that decides what is trained; settings of the
GPUs."""
USERS_OWN = (PLUGINS, *WRITES)


def without_users_own(tables: Tables) -> Tables:
    """What is taken up of the tables of a found file."""
    return {name: table for name, table in tables.items() if name not in USERS_OWN}


def left_out(tables: Tables, layers: Iterable[Tables], place: str) -> str:
    """What to say of tables that were found at `place` and that the user's `layers` do not give again; empty where
    there are none. Plug-ins are told of by themselves."""
    given = {name for layer in layers for name in layer}
    lines = _lines(tables, but=given)
    if not lines:
        return ""
    return (
        f"{place}: no file decides what a run writes or sets on this machine, so this of its input is left out; "
        f"to have it, add: {shlex.join(word for line in lines for word in ('-o', line))}"
    )


def given_again(given: Input) -> list[str]:
    """The words of the command line that give again all that is the user's own in an input."""
    plugins = [word for plugin in given.extensions.plugins for word in ("--plugin", plugin.path)]
    return [*plugins, *(word for line in _lines(given.tables) for word in ("-o", line))]


def _lines(tables: Tables, but: Iterable[str] = ()) -> list[str]:
    names = [name for name in WRITES if tables.get(name) and name not in but]
    return [f"{name}={inline_toml(tables[name], name)}" for name in names]
