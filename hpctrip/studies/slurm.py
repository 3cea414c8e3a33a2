"""Submits the runs of a study to Slurm as job arrays over one frozen list."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpctrip.base.errors import InputError
from hpctrip.base.io import remove_file, replace_file
from hpctrip.runner.batch_script import site_script
from hpctrip.runner.job_status import RunStatus
from hpctrip.studies.frozen import freeze, new_list
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunState, RunStore

_JOB = re.compile(r"\d+(_\d+)?")
"""A job of Slurm, or a task of an array."""
DEFAULT_ARRAY_SIZE = 1001
"""MaxArraySize of a Slurm that is not configured otherwise."""


@dataclass(frozen=True)
class Submission:
    """A frozen list of runs, and the script that executes one of them for each index."""

    store: RunStore
    entries: Sequence[Entry]
    list_file: Path
    script: Path

    @classmethod
    def write(cls, store: RunStore, name: str, entries: Sequence[Entry], **site: object) -> Submission:
        """Write the list and the script; `site` are the arguments of `site_script`. Raises InputError."""
        list_file = new_list(store, name)
        script = list_file.with_suffix(".sh")
        text = site_script("study", str(script), **site)  # type: ignore[arg-type]
        freeze(list_file, entries)
        replace_file(script, text.encode())
        return cls(store, entries, list_file, script)

    def commands(self, at_once: int | None) -> Iterator[tuple[Sequence[Entry], list[str]]]:
        """(runs, arguments of sbatch) of each array: as many tasks as this Slurm accepts. Where it accepts no arrays,
        each run is a job."""
        size = max(1, _max_array_size())
        for first in range(0, len(self.entries), size):
            runs = self.entries[first : first + size]
            array = f"--array=0-{len(runs) - 1}" + (f"%{at_once}" if at_once else "")
            index = [] if size > 1 else ["--index", "0"]
            after = ["--first", str(first)] if first else []
            yield (
                runs,
                [*([array] if size > 1 else []), str(self.script), str(self.list_file), *index, *after],
            )

    def submit(self, at_once: int | None) -> list[str]:
        """Submit all arrays, with `at_once` one after the other. Returns the numbers of their jobs. Raises InputError
        where there is no sbatch, and where it refuses one, with the jobs that exist and the command for the others."""
        if shutil.which("sbatch") is None:
            hint = "log in where Slurm is, or add --write for another scheduler"
            raise InputError("study submit", "there is no sbatch here", hint)
        jobs: list[str] = []
        for runs, words in self.commands(at_once):
            after = [f"--dependency=afterany:{jobs[-1]}"] if at_once and jobs else []
            self._note(runs)
            command = ["sbatch", "--parsable", *after, *words]
            try:
                ended = subprocess.run(command, capture_output=True, text=True)
            except BaseException:  # Ctrl-C while the controller does not answer
                self._forget(runs)
                raise
            if ended.returncode:
                self._forget(runs)
                reason = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
                done = f"; submitted before: job {', '.join(jobs)}" if jobs else ""
                hint = f"when it accepts them: {shlex.join(['sbatch', *words])}"
                if re.search("gres|gpu|tres", reason, re.IGNORECASE):
                    hint = f"where GPUs are no resource of Slurm's, submit with --gpus 0; {hint}"
                raise InputError("study submit", f"sbatch refuses {len(runs)} runs: {reason}{done}", hint)
            jobs.append(job := ended.stdout.strip().partition(";")[0])
            tasks = [f"{job}_{index}" for index in range(len(runs))]
            self._note(runs, tasks if words[0].startswith("--array") else [job])
        return jobs

    def _forget(self, runs: Sequence[Entry]) -> None:
        """These runs are not queued."""
        for entry in runs:
            remove_file(self.store.status_file(entry.identity))

    def _note(self, runs: Sequence[Entry], jobs: Sequence[str] = ()) -> None:
        """Note that these runs are queued: as part of this list, or, those that have not begun yet, as these `jobs`."""
        for entry, job in zip(runs, jobs or [self.list_file.stem] * len(runs), strict=True):
            if not jobs or self.store.job(entry.identity).state == RunStatus.QUEUED:
                self.store.note(entry.identity, state=RunStatus.QUEUED, job=job)


def is_submitted(line: RunState) -> bool:
    """Whether a run is running, or is queued as a job that Slurm has accepted: a submission that was killed before it
    knew has left the name of its list."""
    queued = line.status == RunStatus.QUEUED
    return line.status == RunStatus.RUNNING or (queued and bool(_JOB.fullmatch(line.job.job)))


def without_cancelled(lines: Iterable[RunState]) -> list[RunState]:
    """The status of runs, of which those are planned again whose Slurm job has gone before they began. Slurm is asked
    once, if any is queued."""
    lines = list(lines)
    queued = {
        line.job.job for line in lines if line.status == RunStatus.QUEUED and _JOB.fullmatch(line.job.job)
    }
    if queued:
        question = ["squeue", "--noheader", "--array", "--me", "--format=%i"]
        with suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(question, capture_output=True, text=True, timeout=60, check=True)
            gone = queued.difference(answer.stdout.split())
            return [
                replace(line, status=RunStatus.PLANNED, reason=f"its job {line.job.job} has gone")
                if line.status == RunStatus.QUEUED and line.job.job in gone
                else line
                for line in lines
            ]
    return lines


def _max_array_size() -> int:
    """The largest number of tasks in an array; 0: this Slurm accepts no arrays."""
    config = ""
    with suppress(OSError):
        config = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True).stdout
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
    return int(match[1]) if match else DEFAULT_ARRAY_SIZE
