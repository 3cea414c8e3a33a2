"""Runs studies: executes missing runs, reports failed ones, and writes the tables and figures."""

from __future__ import annotations

import fnmatch
import sys
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hpctrip.base.errors import HpctripError, InputError, InterruptedRun
from hpctrip.base.io import BestEffortStream
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.runner.job_status import JobStatus, RunStatus
from hpctrip.studies.execute import Executor, capacity, launcher
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunState
from hpctrip.studies.slurm import without_cancelled
from hpctrip.studies.study import Study

if TYPE_CHECKING:
    from rich.progress import TaskID


def chosen(studies: Sequence[Study], only: str | None) -> list[RunState]:
    """The current ledger lines of the runs whose names contain or match the pattern `only`, each run once. Raises
    InputError if there is none."""
    selected: dict[str, RunState] = {}
    for study in studies:
        for line in study.lines():
            name = line.entry.name
            if only is None or only in name or fnmatch.fnmatchcase(name, only):
                selected.setdefault(line.entry.identity, line)
    if not selected:
        names = [entry.name for study in studies for entry in study.entries]
        raise InputError(
            f"--only {only}", "no run has such a name", f"the first is {names[0]!r}; `study status` shows all"
        )
    return without_cancelled(selected.values())


def run(
    studies: Sequence[Study],
    only: str | None,
    jobs: int | None,
    ranks: int,
    again: str,
) -> None:
    """Execute missing runs, then write tables and figures. `again` is the command that continues the study. Raises
    InterruptedRun, without tables, if a signal or the end of the job stopped it early; at the end InterruptedRun if a
    run left early, or HpctripError if runs failed, with one line per failed run."""
    lines = chosen(studies, only)
    todo = [line.entry for line in lines if line.can_be_made]
    for study in studies:
        study.write_ledger()
        for text in study.warnings() if todo else ():
            click.echo(printable(f"warning: {text}", 1000))
    if todo and not _execute(studies, lines, todo, jobs, ranks):
        for study in studies:
            study.write_ledger()
        raise InterruptedRun(_how_to_go_on(chosen(studies, only), again))
    for study in studies:
        for text in study.conclude(asked={line.entry.identity for line in lines}):
            click.echo(printable(text, 1000))
    lines = chosen(studies, only)
    report = []
    if failed := [line for line in lines if line.status == RunStatus.FAILED]:
        report.append(f"{len(failed)} of {len(lines)} runs failed:")
        for line in failed:
            log = studies[0].runs.log(line.entry.identity)
            report.append(f"{line.entry.name}: {line.reason}{f' (log: {log})' if log.exists() else ''}")
    if any(not line.finished and line not in failed for line in lines):
        raise InterruptedRun("\n".join([*report, _how_to_go_on(lines, again)]))
    if failed:
        raise HpctripError("\n".join(report))


def _how_to_go_on(lines: Sequence[RunState], again: str) -> str:
    """The number of finished runs, and the command that continues the study."""
    finished = sum(line.finished for line in lines)
    return f"{finished} of {len(lines)} runs are finished; continue with: {again}"


def _execute(
    studies: Sequence[Study],
    lines: Sequence[RunState],
    todo: Sequence[Entry],
    jobs: int | None,
    ranks: int,
) -> bool:
    """Execute the runs `todo`; returns False if a signal to the study, or the end of
    the job, stopped them early. Raises InputError where ranks cannot be started."""
    launch = launcher(ranks)
    num_children, gpus = capacity(todo, ranks)
    num_children = min(len(todo), jobs or num_children)
    with Display(len(lines), sum(line.finished for line in lines)) as display:
        counts = Counter(line.status for line in lines)
        statuses = ", ".join(f"{number} {status}" for status, number in counts.items())
        names = ", ".join(study.name for study in studies)
        display.print(f"study {names}: {len(lines)} runs ({statuses})")
        each = f", {ranks} ranks each" if ranks > 1 else ""
        display.print(f"{len(todo)} missing, {num_children} in parallel{each}")
        sys.stdout.flush()
        executor = Executor(studies[0].runs, deque(todo), num_children, display.ended, gpus, ranks, launch)
        return executor.run(lambda: display.follow(executor))


class Display:
    """Progress of a study: on a terminal a bar, with a line for each run in progress; else a line per finished run."""

    def __init__(self, total: int, finished: int):
        """`finished` of the `total` runs were finished before."""
        from rich.console import Console  # heavy
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        unbreakable = BestEffortStream(sys.stdout)  # the study goes on if the output breaks
        self._console = Console(file=unbreakable, highlight=False, soft_wrap=True)
        self._ended = Counter({RunStatus.FINISHED: finished})
        self._total = total
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=2,
            disable=not self._console.is_terminal,
        )
        self._all = self._bars.add_task("runs", total=total, completed=finished)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def print(self, line: str) -> None:
        """Print one line above the bar."""
        self._console.print(printable(line, 1000), markup=False)

    def ended(self, end: RunState) -> None:
        """Count a run that has ended, and print its line."""
        entry = end.entry
        self._ended[end.status] += 1
        if (task := self._tasks.pop(entry.identity, None)) is not None:
            self._bars.remove_task(task)
        self._bars.advance(self._all, end.finished)
        if end.status == RunStatus.FAILED:
            self.print(f"failed: {entry.name}: {end.reason.splitlines()[0]}")
        elif end.status == RunStatus.INTERRUPTED:
            self.print(f"interrupted: {entry.name}{f': {end.reason}' if end.reason else ''}")
        elif not self._console.is_terminal:
            failed = self._ended[RunStatus.FAILED]
            counts = f"{self._ended[RunStatus.FINISHED]} of {self._total} finished"
            self.print(f"finished: {entry.name} ({counts}{f', {failed} failed' if failed else ''})")
        for line in end.job.warnings:
            self.print(f"{entry.name}: {line}")

    def follow(self, executor: Executor) -> None:
        """Show the rounds of the runs in progress."""
        if self._bars.disable:
            return
        for child in executor.children:
            entry, job = child.entry, executor.runs.job(child.entry.identity)
            if entry.identity not in self._tasks:
                total = entry.run_input.experiment.stop.max_rounds
                self._tasks[entry.identity] = self._bars.add_task("", total=total)
            description = printable(f"{entry.name}  {reached(job)}", 120)
            self._bars.update(self._tasks[entry.identity], description=description, completed=job.round)


def reached(job: JobStatus) -> str:
    """How far a run has come: its accuracy and its simulated time; empty before its first round."""
    accuracy = "" if job.accuracy is None else f"accuracy {job.accuracy:.4f}  "
    return f"{accuracy}clock {job.clock_s / HOUR_S:.3f} h" if job.round else ""
