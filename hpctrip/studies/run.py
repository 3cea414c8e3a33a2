"""Runs studies: executes missing runs, reports failed ones, and writes the tables and figures."""

from __future__ import annotations

import fnmatch
import sys
from collections import Counter, deque
from collections.abc import Sequence

import click

from hpctrip.base.errors import HpctripError, InputError, InterruptedRun
from hpctrip.base.text import printable
from hpctrip.studies.display import Display
from hpctrip.studies.execute import WorkerPool, capacity
from hpctrip.studies.grid import Entry
from hpctrip.studies.imported import import_runs
from hpctrip.studies.ledger import Line
from hpctrip.studies.run_store import RunStatus
from hpctrip.studies.studies import Study, all_entries
from hpctrip.studies.worker import End


def chosen(studies: Sequence[Study], only: str | None) -> list[Line]:
    """The current ledger lines of the runs whose names contain or match the pattern `only`, each run once. Raises
    InputError if there is none."""
    selected: dict[str, Line] = {}
    for study in studies:
        for line in study.ledger.lines():
            name = line.entry.name
            if only is None or only in name or fnmatch.fnmatchcase(name, only):
                selected.setdefault(line.entry.identity, line)
    if not selected:
        names = [entry.name for study in studies for entry in study.ledger.entries]
        raise InputError(
            f"--only {only}", "no run has such a name", f"the first is {names[0]!r}; --list shows all"
        )
    return list(selected.values())


def import_ledgers(studies: Sequence[Study], ledgers: Sequence[str]) -> list[str]:
    """Import the finished runs of ledgers that were written on other machines. Returns one line of report per ledger.
    Raises InputError if none of a ledger's rows is a run of the studies."""
    report, folder = [], studies[0].ledger.runs.folder / "runs"
    for ledger in ledgers:
        imported, others, bare = import_runs(ledger, all_entries(studies), folder)
        if not imported and not bare:
            problem = f"none of its {others} finished rows is a run of this study: input, data or code differ"
            raise InputError(ledger, problem, "import the ledger of the same study, made by the same hpctrip")
        left = f"; {others} rows of other inputs were left out" if others else ""
        if bare:  # rows without a curve
            left += (
                f"; {bare} have no curve yet: start the study once more where they were made, which writes it"
            )
        report.append(f"{ledger}: {imported} finished runs taken up{left}")
    return report


def plan(lines: Sequence[Line], jobs: int | None, samples_per_second: float | None) -> None:
    """Print the number of missing runs and the wall time and disk space that they will take."""
    from hpctrip.studies.plan import groups, report

    missing = groups(lines, samples_per_second)
    for line in report(lines, missing, jobs or capacity()[0]):
        click.echo(printable(line, 1000))


def run(studies: Sequence[Study], only: str | None, jobs: int | None, ranks: int, again: str) -> None:
    """Execute missing runs, then write tables and figures. Raises as `make` and `refuse_failures` do."""
    make(studies, only, jobs, ranks, again)
    for study in studies:
        for line in study.conclude():
            click.echo(printable(line, 1000))
    refuse_failures(studies, only)


def make(studies: Sequence[Study], only: str | None, jobs: int | None, ranks: int, again: str) -> None:
    """Execute missing runs. `again` is the command that continues the study. Raises InterruptedRun if a signal stopped
    it early."""
    lines = chosen(studies, only)
    todo = [line for line in lines if line.can_be_made]
    for study in studies:
        study.ledger.write()
    if not _execute(studies, lines, todo, jobs, ranks):
        for study in studies:
            study.ledger.export()
        finished = len(lines) - sum(not line.finished for line in chosen(studies, only))
        raise InterruptedRun(f"{finished} of {len(lines)} runs are finished; go on with: {again}")


def refuse_failures(studies: Sequence[Study], only: str | None = None) -> None:
    """Raise HpctripError, with one line per run, if runs failed."""
    lines = chosen(studies, only)
    failed = [line for line in lines if line.status == RunStatus.FAILED]
    if failed:
        log = studies[0].ledger.runs.log
        logs = [log(line.entry.identity) for line in failed]
        reasons = [
            f"{line.entry.name}: {line.reason}{f' (log: {file})' if file.exists() else ''}"
            for line, file in zip(failed, logs, strict=True)
        ]
        raise HpctripError("\n".join([f"{len(failed)} of {len(lines)} runs failed:", *reasons]))


def _execute(
    studies: Sequence[Study], lines: Sequence[Line], todo: Sequence[Line], jobs: int | None, ranks: int
) -> bool:
    """Execute the runs `todo`; returns False if a signal stopped them early."""
    if not todo:
        return True
    num_workers, gpus = capacity()
    num_workers = min(len(todo), jobs or max(1, num_workers // ranks))
    pool = WorkerPool(
        studies[0].ledger.runs,
        deque(line.entry for line in todo),
        num_workers,
        gpus if ranks == 1 else (),
        ranks,
    )
    studies_of: dict[str, list[Study]] = {}
    for study in studies:
        for entry in study.ledger.entries:
            studies_of.setdefault(entry.identity, []).append(study)
    with Display(len(lines), sum(line.finished for line in lines)) as display:
        for study in studies:
            statuses = Counter(line.status for line in study.ledger.lines())
            counts = ", ".join(f"{number} {status}" for status, number in statuses.items())
            display.print(f"study {study.ledger.name}: {len(study.ledger.entries)} runs ({counts})")
        display.print(
            f"{len(todo)} to make, {num_workers} side by side"
            + (f", {ranks} ranks each" if ranks > 1 else "")
        )

        def on_end(entry: Entry, end: End) -> None:
            display.ended(entry, end)
            if end.status != RunStatus.INTERRUPTED:
                for study in studies_of[entry.identity]:
                    study.ledger.write()

        sys.stdout.flush()
        return pool.run(on_end, lambda: display.follow(pool.workers))
