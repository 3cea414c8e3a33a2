"""A study as an array of Slurm jobs, and one task of it: the run of its index, on the ranks of the job."""

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
    """Submit what is left to make; `command` are the arguments of `hpctrip study`. Returns the job's id. Raises
    InputError where there is no Slurm, or it refuses."""
    if shutil.which("sbatch") is None:
        raise InputError("--slurm", "there is no sbatch here", "log in where Slurm is, or leave it out")
    for study in studies:
        study.ledger.write()
    script = studies[0].ledger.folder / "study.sh"
    replace_file(script, site_script("study", str(script), **site).encode())
    place = {entry.identity: number for number, entry in enumerate(all_entries(studies))}
    array = spans(sorted(place[line.entry.identity] for line in todo)) + (f"%{at_once}" if at_once else "")
    said = subprocess.run(
        ["sbatch", "--parsable", f"--array={array}", str(script), *command], capture_output=True, text=True
    )
    if said.returncode:
        reason = " ".join(said.stderr.split())
        raise InputError("--slurm", f"sbatch refuses: {reason}", f"the script is {shlex.quote(str(script))}")
    return said.stdout.strip().partition(";")[0]


def spans(numbers: Sequence[int]) -> str:
    """0-2,5 of 0, 1, 2, 5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in found)


def run_task(number: int, read: Callable[[], list[Study]]) -> None:
    """Make the run of this array index on the ranks that there are; rank 0 reads the studies and keeps the ledger.
    Raises what the run raises."""
    found: list[tuple[list[Study], Entry]] = []

    def begin() -> Start:
        studies = read()
        entries = all_entries(studies)
        if not 0 <= number < len(entries):
            raise InputError(
                f"--task {number}", f"the study has {len(entries)} runs", f"0 to {len(entries) - 1}"
            )
        entry = entries[number]
        found.append((studies, entry))
        runs = studies[0].ledger.runs
        runs.forget_failure(entry.identity)
        print(printable(f"run {number} of {len(entries)}: {entry.name}", 1000), flush=True)
        given = resolve(runs.tables(entry), entry.given.extensions)
        return start_or_resume_input(given, str(runs.results(entry.identity)))

    try:
        with Guardian() as guardian:
            launch(begin, guardian)
        for studies, entry in found:
            studies[0].ledger.runs.settle(entry.identity)
    except (InterruptedRun, HeldError):
        raise
    except HpctripError as error:
        for studies, entry in found:
            studies[0].ledger.runs.fail(entry.identity, str(error))
        raise
    finally:
        for studies, _ in found:
            for study in studies:
                study.ledger.write()
