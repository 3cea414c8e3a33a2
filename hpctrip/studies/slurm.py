"""Submits a study as a Slurm job array, and executes one task of it: the run with that index, on the job's ranks."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from hpctrip.base.errors import HpctripError, InputError, InterruptedRun
from hpctrip.base.io import replace_file
from hpctrip.base.text import printable
from hpctrip.ranks.watchdog.guardian import Guardian
from hpctrip.record.lock import HeldError
from hpctrip.runner.batch_script import site_script
from hpctrip.runner.experiment import resolve
from hpctrip.runner.resume import Start, start_or_resume_input
from hpctrip.runner.session import launch
from hpctrip.studies.grid import Entry
from hpctrip.studies.ledger import Line
from hpctrip.studies.studies import Study, all_entries


def submit(
    studies: Sequence[Study], todo: Sequence[Line], at_once: int | None, command: Sequence[str], **site: Any
) -> str:
    """Submit the runs `todo`; `command` are the arguments of `hpctrip study`. Returns the id of the job. Raises
    InputError if there is no sbatch, or if it fails."""
    if shutil.which("sbatch") is None:
        raise InputError("--slurm", "there is no sbatch here", "log in where Slurm is, or leave it out")
    for study in studies:
        study.ledger.write()
    script = studies[0].ledger.folder / "study.sh"
    replace_file(script, site_script("study", str(script), **site).encode())
    place = {entry.identity: number for number, entry in enumerate(all_entries(studies))}
    array = spans(sorted(place[line.entry.identity] for line in todo)) + (f"%{at_once}" if at_once else "")
    sbatch = subprocess.run(
        ["sbatch", "--parsable", f"--array={array}", str(script), *command], capture_output=True, text=True
    )
    if sbatch.returncode:
        reason = " ".join(sbatch.stderr.split())
        raise InputError("--slurm", f"sbatch refuses: {reason}", f"the script is {shlex.quote(str(script))}")
    return sbatch.stdout.strip().partition(";")[0]


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges, in the notation of sbatch --array: 0, 1, 2, 5 as 0-2,5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def run_task(number: int, read: Callable[[], list[Study]]) -> None:
    """Execute the run with this array index on the ranks of this job. Rank 0 alone reads the studies and writes their
    ledgers. Raises what the run raises."""
    on_rank0: list[tuple[list[Study], Entry]] = []

    def begin() -> Start:
        studies = read()
        entries = all_entries(studies)
        if not 0 <= number < len(entries):
            raise InputError(
                f"--task {number}", f"the study has {len(entries)} runs", f"0 to {len(entries) - 1}"
            )
        entry = entries[number]
        on_rank0.append((studies, entry))
        runs = studies[0].ledger.runs
        runs.clear_failure(entry.identity)
        print(printable(f"run {number} of {len(entries)}: {entry.name}", 1000), flush=True)
        run_input = resolve(runs.input_tables(entry), entry.run_input.extensions)
        return start_or_resume_input(run_input, str(runs.results(entry.identity)))

    try:
        with Guardian() as guardian:
            launch(begin, guardian)
        for studies, entry in on_rank0:
            studies[0].ledger.runs.remove_leftovers(entry.identity)
    except (InterruptedRun, HeldError):
        raise
    except HpctripError as error:
        for studies, entry in on_rank0:
            studies[0].ledger.runs.record_failure(entry.identity, str(error))
        raise
    finally:
        for studies, _ in on_rank0:
            for study in studies:
                study.ledger.write()
