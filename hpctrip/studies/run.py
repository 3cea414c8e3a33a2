"""Studies to their end: what is missing is made, what failed is told, and what there is becomes tables and figures."""

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
    """The runs whose names hold, or match, the pattern, each once, as they are now. InputError where there is none."""
    found: dict[str, Line] = {}
    for study in studies:
        for line in study.ledger.lines():
            name = line.entry.name
            if only is None or only in name or fnmatch.fnmatchcase(name, only):
                found.setdefault(line.entry.identity, line)
    if not found:
        names = [entry.name for study in studies for entry in study.ledger.entries]
        raise InputError(
            f"--only {only}", "no run has such a name", f"the first is {names[0]!r}; --list shows all"
        )
    return list(found.values())


def import_ledgers(studies: Sequence[Study], ledgers: Sequence[str]) -> list[str]:
    """Take up the finished rows of ledgers that were written elsewhere; returns what is to be said. Raises InputError
    where none of a ledger's rows is a run of the studies."""
    said, folder = [], studies[0].ledger.runs.folder / "runs"
    for ledger in ledgers:
        taken, others, bare = import_runs(ledger, all_entries(studies), folder)
        if not taken and not bare:
            problem = f"none of its {others} finished rows is a run of this study: input, data or code differ"
            raise InputError(ledger, problem, "import the ledger of the same study, made by the same hpctrip")
        left = f"; {others} rows of other inputs were left out" if others else ""
        if bare:
            left += (
                f"; {bare} have no curve yet: start the study once more where they were made, which writes it"
            )
        said.append(f"{ledger}: {taken} finished runs taken up{left}")
    return said


def plan(lines: Sequence[Line], jobs: int | None, samples_per_second: float | None) -> None:
    """Say what is to be made and what it will take."""
    from hpctrip.studies.plan import groups, report

    found = groups(lines, samples_per_second)
    for line in report(lines, found, jobs or capacity()[0]):
        click.echo(printable(line, 1000))


def run(studies: Sequence[Study], only: str | None, jobs: int | None, ranks: int, again: str) -> None:
    """Make what is missing, then tables and figures. Raises as `make` and `refuse_failures`."""
    make(studies, only, jobs, ranks, again)
    for study in studies:
        for line in study.conclude():
            click.echo(printable(line, 1000))
    refuse_failures(studies, only)


def make(studies: Sequence[Study], only: str | None, jobs: int | None, ranks: int, again: str) -> None:
    """Make what is missing. `again` is the command that goes on. Raises InterruptedRun where a signal has ended it
    early."""
    lines = chosen(studies, only)
    todo = [line for line in lines if line.can_be_made]
    for study in studies:
        study.ledger.write()
    if not _made(studies, lines, todo, jobs, ranks):
        for study in studies:
            study.ledger.export()
        finished = len(lines) - sum(not line.finished for line in chosen(studies, only))
        raise InterruptedRun(f"{finished} of {len(lines)} runs are finished; go on with: {again}")


def refuse_failures(studies: Sequence[Study], only: str | None = None) -> None:
    """Raise HpctripError where runs failed, naming each."""
    lines = chosen(studies, only)
    failed = [line for line in lines if line.status == RunStatus.FAILED]
    if failed:
        log = studies[0].ledger.runs.log
        logs = [log(line.entry.identity) for line in failed]
        said = [
            f"{line.entry.name}: {line.reason}{f' (log: {file})' if file.exists() else ''}"
            for line, file in zip(failed, logs, strict=True)
        ]
        raise HpctripError("\n".join([f"{len(failed)} of {len(lines)} runs failed:", *said]))


def _made(
    studies: Sequence[Study], lines: Sequence[Line], todo: Sequence[Line], jobs: int | None, ranks: int
) -> bool:
    """Whether all runs had their turn."""
    if not todo:
        return True
    num_workers, gpus = capacity()
    num_workers = min(len(todo), jobs or max(1, num_workers // ranks))
    crew = WorkerPool(
        studies[0].ledger.runs,
        deque(line.entry for line in todo),
        num_workers,
        gpus if ranks == 1 else (),
        ranks,
    )
    of: dict[str, list[Study]] = {}
    for study in studies:
        for entry in study.ledger.entries:
            of.setdefault(entry.identity, []).append(study)
    with Display(len(lines), sum(line.finished for line in lines), num_workers) as display:
        for study in studies:
            statuses = Counter(line.status for line in study.ledger.lines())
            counts = ", ".join(f"{number} {status}" for status, number in statuses.items())
            display.say(f"study {study.ledger.name}: {len(study.ledger.entries)} runs ({counts})")
        display.say(
            f"{len(todo)} to make, {num_workers} side by side"
            + (f", {ranks} ranks each" if ranks > 1 else "")
        )

        def ended(entry: Entry, end: End) -> None:
            display.ended(entry, end)
            if end.how != RunStatus.INTERRUPTED:
                for study in of[entry.identity]:
                    study.ledger.write()

        sys.stdout.flush()
        return crew.run(ended, lambda: display.follow(crew.workers))
