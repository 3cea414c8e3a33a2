"""The table of `hpctrip study status`: the state of every run, and how far it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from hpctrip.base.errors import HpctripError
from hpctrip.base.text import counted, printable
from hpctrip.runner.job_status import RunStatus
from hpctrip.studies.run import chosen, reached
from hpctrip.studies.run_store import RunState
from hpctrip.studies.study import Study

INTERVAL_S = 5.0
"""Seconds between two tables of `--watch`."""
UNDER_WAY = (RunStatus.RUNNING, RunStatus.QUEUED)


def show(studies: Sequence[Study], only: str | None, watch: bool) -> None:
    """Print the table; with `watch` again and again, until no run is queued or running."""
    before: list[str] = []
    while True:
        lines = chosen(studies, only)
        if any(line.finished and line.row is None for line in lines):
            for study in studies:  # so that the results of these runs are not opened again
                study.write_ledger()
        if (texts := list(table(lines, with_finished=not watch))) != before:
            if watch:
                click.clear()
            click.echo("\n".join(texts))
        if not watch:
            return
        if not any(line.status in UNDER_WAY for line in lines):
            if failed := sum(line.status == RunStatus.FAILED for line in lines):
                raise HpctripError(f"{counted(failed, 'run')} failed")
            return
        before = texts
        time.sleep(INTERVAL_S)


def table(lines: Sequence[RunState], with_finished: bool = True) -> Iterator[str]:
    """The lines of the table: a run each, perhaps without those that are finished, and how many there are of each
    state."""
    shown = [line for line in lines if with_finished or not line.finished]
    names = [printable(line.entry.name, 200) for line in shown]
    width = min(60, max(map(len, names), default=0))
    for line, name in zip(shown, names, strict=True):
        rounds = (
            f"{line.job.round} of {line.entry.run_input.experiment.stop.max_rounds}" if line.job.round else ""
        )
        warned = " | ".join(line.job.warnings) if line.row is None else line.row["warnings"]
        facts = (rounds, reached(line.job), line.reason, warned)
        text = f"{line.status:11}  {name:{width}}  {'  '.join(filter(None, facts))}"
        yield printable(text.rstrip(), 600)
    counts = Counter(line.status for line in lines)
    yield f"{counted(len(lines), 'run')}: " + ", ".join(
        f"{number} {status}" for status, number in counts.items()
    )
