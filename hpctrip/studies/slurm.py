"""Submits a study as Slurm job arrays, and executes one task of an array: a run, on the ranks of the job.

The index of a task counts the lines of a file of runs that is written at submission, so that a study file that changes
while an array waits does not give its tasks other runs.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from hpctrip.base.errors import HpctripError, InputError, InterruptedRun
from hpctrip.base.io import digest, read_text, remove_file, replace_file
from hpctrip.base.text import printable
from hpctrip.ranks.watchdog.guardian import Guardian
from hpctrip.record.lock import HeldError
from hpctrip.runner.batch_script import site_script
from hpctrip.runner.experiment import resolve
from hpctrip.runner.resume import start_or_resume_input
from hpctrip.runner.session import Start, launch
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunState
from hpctrip.studies.studies import all_entries
from hpctrip.studies.study import Study


def submit(
    studies: Sequence[Study],
    todo: Sequence[RunState],
    at_once: int | None,
    command: Sequence[str],
    **site: Any,
) -> list[str]:
    """Submit the runs `todo` as arrays of as many tasks as Slurm accepts; with `at_once`, one array after the other.

    `command` are the arguments of `hpctrip study`. Returns the ids of the jobs. Raises InputError if there is no
    sbatch, or if it fails.
    """
    if shutil.which("sbatch") is None:
        raise InputError("--slurm", "there is no sbatch here", "log in where Slurm is, or leave it out")
    for study in studies:
        study.write_ledger()
    folder = studies[0].folder
    script = folder / "study.sh"
    replace_file(script, site_script("study", str(script), **site).encode())
    lines = [f"{line.entry.identity} {printable(line.entry.name)}\n" for line in todo]
    size, jobs = _max_array_size(), []
    for first in range(0, len(lines), size):
        chunk = lines[first : first + size]
        text = "".join(chunk).encode()
        tasks = folder / f"tasks-{digest(text)[:12]}.txt"
        replace_file(tasks, text)
        array = f"--array=0-{len(chunk) - 1}" + (f"%{at_once}" if at_once else "")
        after = [f"--dependency=afterany:{jobs[-1]}"] if at_once and jobs else []
        jobs.append(_sbatch(array, *after, str(script), *command, "--tasks", str(tasks)))
    return jobs


def _max_array_size() -> int:
    """The largest number of tasks in an array; 1001 is Slurm's default."""
    config = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True).stdout
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
    return int(match[1]) if match else 1001


def _sbatch(*words: str) -> str:
    """Submit a job; returns its id."""
    ended = subprocess.run(["sbatch", "--parsable", *words], capture_output=True, text=True)
    if ended.returncode:
        reason = " ".join(ended.stderr.split())
        raise InputError("--slurm", f"sbatch refuses: {reason}", f"the command was {shlex.join(words)}")
    return ended.stdout.strip().partition(";")[0]


def run_task(number: int, tasks: str | None, read: Callable[[str], list[Study]]) -> None:
    """Execute one run on the ranks of this job: that of line `number` of the file `tasks`, or of this index among all
    runs. Rank 0 alone reads the studies and appends to their ledgers; `read(name)` leaves out runs of other names, or
    none if the name is empty. Raises what the run raises."""
    on_rank0: list[tuple[list[Study], Entry]] = []

    def begin() -> Start:
        studies, entry = _task(number, tasks, read)
        on_rank0.append((studies, entry))
        runs = studies[0].runs
        remove_file(runs.failure(entry.identity))
        run_input = resolve(runs.input_tables(entry), entry.run_input.extensions)
        return start_or_resume_input(run_input, str(runs.results(entry.identity)))

    try:
        with Guardian() as guardian:
            launch(begin, guardian)
        for studies, entry in on_rank0:
            studies[0].runs.remove_leftovers(entry.identity)
    except (InterruptedRun, HeldError):
        raise
    except HpctripError as error:
        for studies, entry in on_rank0:
            studies[0].runs.record_failure(entry.identity, str(error))
        raise
    finally:
        for studies, entry in on_rank0:
            for study in studies:
                study.append_to_ledger(entry.identity)


def _task(number: int, tasks: str | None, read: Callable[[str], list[Study]]) -> tuple[list[Study], Entry]:
    """The studies that have the run of a task, and the run. Other runs are left out if the file `tasks` names this
    one."""
    studies = [] if tasks else read("")
    lines = (
        read_text(tasks).splitlines() if tasks else [f"{e.identity} {e.name}" for e in all_entries(studies)]
    )
    if number >= len(lines):
        place = f"{tasks} has" if tasks else "the study has"
        raise InputError(f"--task {number}", f"{place} {len(lines)} runs", f"0 to {len(lines) - 1}")
    identity, _, name = lines[number].partition(" ")
    studies = studies or read(name)
    for entry in all_entries(studies):
        if entry.identity == identity:
            print(printable(f"run {number} of {len(lines)}: {entry.name}", 1000), flush=True)
            return studies, entry
    raise InputError(
        f"--task {number}: {name}",
        "is no longer a run of this study: its input, data or code has changed since it was submitted",
        "submit the study again",
    )
