"""The tests in several processes (pytest-xdist): much of the suite waits for ranks and for Slurm, or uses one core.

A file runs in one process, so that its fixtures are made once. Those that use Slurm come one after the other, because
one of them takes its node down.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

PROCESSES = 4
"""Also on two cores: one of them is with Slurm, which means waiting, and those that launch ranks often wait too."""
WAITING = ("slurm", "mpi", "timeout")
"""Marks of tests that wait, or take longer than others may, those that do so for longest first; whoever begins with
them fills the time with others."""


@functools.cache
def waiting(root: Path, file: str) -> str:
    """The first of these marks that tests of a file have, or ""."""
    text = (root / file).read_text()
    return next((mark for mark in WAITING if f"pytest.mark.{mark}" in text), "")


class SideBySide(LoadScopeScheduling):
    """Work is handed out by file; all that use Slurm are one piece."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "slurm" if waiting(self.config.rootpath, file) == "slurm" else file


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """None beside pytest's own process where files were named, or to see the output: for debugging, and because
    starting them takes longer than most files."""
    wants_to_see = config.option.capture == "no" or config.option.trace
    folders = all((config.invocation_params.dir / name).is_dir() for name in config.args)
    return PROCESSES if folders and not wants_to_see else 0


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Every process must find tests of the same names. Bytes are none: some are drawn, and a gzip stream holds the
    time at which it was made."""
    return argname if isinstance(val, bytes) else None


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> SideBySide | None:
    """Our own, unless another one than the default was asked for."""
    if config.option.dist != "load":
        return None
    config.option.loadscopereorder = False  # in the order of `pytest_collection_modifyitems`, not by size
    return SideBySide(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several processes, files that wait take turns with files that compute, from the first on: so the cores are
    busy at all times, and what waits for longest does not come last."""
    if not hasattr(config, "workerinput"):
        return
    files = list(dict.fromkeys(_file(item) for item in items))
    marks = {file: waiting(config.rootpath, file) for file in files}
    wait = sorted(filter(marks.get, files), key=lambda file: WAITING.index(marks[file]))
    compute = [file for file in files if not marks[file]]
    turns = [
        *itertools.chain(*zip(wait, compute, strict=False)),
        *compute[len(wait) :],
        *wait[len(compute) :],
    ]
    items.sort(key=lambda item: turns.index(_file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
