"""Frozen lists of runs: index i of a job array executes run i of a file that is written when the array is submitted.

Each line of the file is one run: its identity, its name for people, and its whole input. So a study file that changes
while an array waits changes none of its runs. The list says nothing about a scheduler: whatever sets one of the
variables of `INDICES` can work through it.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_text, replace_file
from hpctrip.base.process import launched_rank
from hpctrip.base.text import printable
from hpctrip.config.plugins import Extensions
from hpctrip.ranks.watchdog.guardian import Guardian
from hpctrip.runner.experiment import Input, input_of, name_plugins
from hpctrip.runner.job_status import StatusFile
from hpctrip.studies.grid import Entry, identity_of
from hpctrip.studies.run_store import RunStore

if TYPE_CHECKING:
    from hpctrip.runner.session import Start

INDICES = {
    "SLURM_ARRAY_TASK_ID": 0,
    "PBS_ARRAY_INDEX": 0,
    "PBS_ARRAYID": 0,
    "JOB_COMPLETION_INDEX": 0,
    "LSB_JOBINDEX": 1,
}
"""{variable of a scheduler (Slurm, PBS, Torque, Kubernetes, LSF): the index of the first run}."""


def new_list(store: RunStore, name: str) -> Path:
    """Path for a list of runs of the study `name` that is submitted now."""
    time = f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    return (store.folder / "submitted" / f"{name.replace('/', '-')}-{time}.jsonl").absolute()


def freeze(path: Path, entries: Sequence[Entry]) -> None:
    """Write a list of these runs, in which the folder of the run store is that of the list, wherever it is read."""
    lines = (
        {"identity": entry.identity, "name": entry.name, "input": tomli_w.dumps(entry.run_input.tables)}
        for entry in entries
    )
    replace_file(path, "".join(f"{json.dumps(line)}\n" for line in lines).encode())


def run_of_list(list_file: str, index: int | None, first: int) -> None:
    """Execute the run of a frozen list with this index, by default that of the scheduler, plus `first`, on the ranks of
    this job. Raises what the run raises, and InputError where the list has no such run, or plug-ins or data that the
    run reads have changed since it was written."""
    from hpctrip.runner.resume import start_or_resume_input  # heavy
    from hpctrip.runner.session import launch

    number = first + (_index_in_array() if index is None else index)
    store = RunStore(Path(list_file).absolute().parents[1])
    identity, name, text, count = _line(list_file, number)

    def begin() -> Start:
        print(printable(f"run {number} of {count}: {name}", 1000), flush=True)
        run_input = _input_of(text, store)
        if identity_of(run_input) != identity:
            problem = "its data or code has changed since it was submitted"
            raise InputError(
                f"{printable(name)}: run {number} of {list_file}", problem, "submit the study again"
            )
        return start_or_resume_input(run_input, str(store.results(identity)))

    with Guardian() as guardian:
        launch(begin, guardian, status=StatusFile(store.status_file(identity)))
    if launched_rank() == 0:
        store.remove_leftovers(identity)


def _index_in_array() -> int:
    """The index that a scheduler has given this job, from 0. Raises InputError."""
    for name, start in INDICES.items():
        if text := os.environ.get(name):
            if text.isdecimal() and len(text) < 10 and int(text) >= start:
                return int(text) - start
            raise InputError(f"{name}={text}", "is no index of an array", f"it counts from {start}")
    raise InputError(
        "study job",
        f"no array index is set ({', '.join(INDICES)})",
        "start it in a job array, or add --index N",
    )


def _line(list_file: str, number: int) -> tuple[str, str, str, int]:
    """(identity, name, input, number of all runs) of a line of a list. Raises InputError."""
    lines = read_text(list_file).split("\n")[:-1]
    if number >= len(lines):
        raise InputError(f"run {number}", f"{list_file} has {len(lines)} runs", f"0 to {len(lines) - 1}")
    try:
        run = json.loads(lines[number])
        return str(run["identity"]), str(run["name"]), str(run["input"]), len(lines)
    except (ValueError, LookupError, TypeError, RecursionError):
        problem = f"line {number + 1} is not a run"
        raise InputError(list_file, problem, "submit the study again") from None


def _input_of(text: str, store: RunStore) -> Input:
    layers, code = name_plugins([store.tables(tomllib.loads(text))], ())
    extensions = Extensions.of(code)
    extensions.run()
    return input_of(layers, extensions)
