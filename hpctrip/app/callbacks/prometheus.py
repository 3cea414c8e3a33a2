"""Metrics for Prometheus, as text files that node_exporter's textfile collector reads (the extra `[metrics]`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from hpctrip.app.callbacks.base import CALLBACKS, Callback, RunFacts
from hpctrip.app.rank_totals import RankTotals
from hpctrip.base.errors import require
from hpctrip.base.io import PathName, refuse_other, remove_leftovers, replace_file
from hpctrip.device.meter import PHASES
from hpctrip.sim.rounds import RoundRow

SUFFIX = ".prom"
"""What the textfile collector reads in its folder, and nothing else."""
_PACE_S = 1.0
"""Between two writings: a scrape every few seconds is usual."""


@CALLBACKS.add
class Prometheus(Callback):
    """Writes a file on every machine of the run, FILE.h5.MACHINE.prom, replaced as a whole after a round. That of rank
    0's machine tells of the run: `hpctrip_rounds_total`, `hpctrip_round_seconds`, `hpctrip_accuracy` and more, with the
    label `run`, the name of the results file. Each tells of its machine's ranks: `hpctrip_phase_seconds_total` and
    `hpctrip_energy_joules_total`, with the labels `rank` and `phase` besides; these count from this start of the run,
    those of the run from its first round."""

    kind: ClassVar[str] = "prometheus"
    on_every_machine: ClassVar[bool] = True
    folder: PathName | None = Field(None, min_length=1)
    """The folder that node_exporter is told of (`--collector.textfile.directory`), on every machine of the run its own
    or one that all share; absent: that of the results FILE.h5."""

    _file: Path
    _registry: Any
    _ranks: RankMetrics
    _run: RunMetrics | None = None
    """At rank 0."""
    _due: float = 0.0

    def check(self) -> None:
        """The package."""
        require('callbacks: kind = "prometheus"', "metrics", "prometheus_client")

    def start(self, run: RunFacts) -> None:
        """The counters as they stand: those of the run go on where an earlier start has ended."""
        from prometheus_client import CollectorRegistry

        folder = Path(self.folder).expanduser() if self.folder else run.path.parent
        self._file = _file(folder, run, run.hosts[run.rank])
        what, way_out = "no file of metrics of hpctrip", f"remove it, or set callbacks.{self.kind}.folder"
        refuse_other(self._file, lambda text: text.startswith(b"# HELP hpctrip_"), what, way_out)
        remove_leftovers(self._file)
        self._registry = CollectorRegistry()
        here = [rank for rank, host in enumerate(run.hosts) if host == run.hosts[run.rank]]
        self._ranks = RankMetrics(run.path.stem, here)
        self._registry.register(self._ranks)
        if run.rank == 0:
            _remove_former(folder, run)
            self._run = RunMetrics(run.path.stem)
            for row in run.rounds:
                self._run.count(row)
            self._registry.register(self._run)
        self._write()

    def ranks(self, totals: RankTotals) -> None:
        """What the ranks of this machine have spent. At rank 0 it is written with the round, which follows."""
        self._ranks.totals = totals
        if self._run is None:
            self._write_if_due()

    def round(self, row: RoundRow) -> None:
        """One more."""
        assert self._run
        self._run.count(row)
        self._write_if_due()

    def end(self, status: str) -> None:
        """The run is not running any more."""
        if self._run:
            self._run.is_running = False
        self._write()

    def _write_if_due(self) -> None:
        """At most a second later than rounds that end sooner than that."""
        if time.monotonic() >= self._due:
            self._write()

    def _write(self) -> None:
        from prometheus_client import generate_latest

        replace_file(self._file, generate_latest(self._registry), durable=False)
        self._due = time.monotonic() + _PACE_S


def _file(folder: Path, run: RunFacts, host: str) -> Path:
    return folder / f"{run.path.name}.{host}{SUFFIX}"


def _remove_former(folder: Path, run: RunFacts) -> None:
    """Remove what this run has left in the folder for machines on which it does not go on: their ranks are elsewhere
    now, and the collector refuses a series that stands in two files."""
    for path in folder.glob(f"{escape(run.path.name)}.*{SUFFIX}"):
        if path not in [_file(folder, run, host) for host in run.hosts]:
            path.unlink(missing_ok=True)


class RunMetrics:
    """The totals of a run, as a collector of prometheus_client. Names and units after Prometheus' conventions."""

    def __init__(self, run: str):
        """`run` is the label's value."""
        self._run = run
        self.is_running = True
        self._rounds = self._samples = 0
        self._wall_s = self._ended_at = 0.0
        self._last: RoundRow | None = None
        self._accuracy: float | None = None

    def count(self, row: RoundRow) -> None:
        """Add a round."""
        self._rounds, self._samples = self._rounds + 1, self._samples + row.num_samples
        self._wall_s, self._ended_at, self._last = self._wall_s + row.wall_s, time.time(), row
        if row.eval_seen:
            self._accuracy = row.accuracy

    def collect(self) -> Iterator[Any]:
        """Every metric; what is not known is absent."""
        from prometheus_client.core import SummaryMetricFamily

        yield self._counter("rounds", "Rounds finished.", self._rounds)
        rounds = SummaryMetricFamily("hpctrip_round_seconds", "Wall time of a round.", labels=["run"])
        rounds.add_metric([self._run], self._rounds, self._wall_s)
        yield rounds
        yield self._counter("samples", "Samples trained on.", self._samples)
        yield self._gauge("running", "1 while the run goes on.", float(self.is_running))
        if self._last is None:
            return
        yield self._gauge("last_round_timestamp_seconds", "When the last round ended.", self._ended_at)
        yield self._gauge("simulated_seconds", "The virtual clock.", self._last.clock_s)
        yield self._gauge("cohort_sites", "Sites of the last cohort.", self._last.num_sites)
        yield self._gauge("arrived_sites", "Sites of it whose updates arrived.", self._last.num_arrived)
        if self._accuracy is not None:
            yield self._gauge("accuracy", "Held-out accuracy, as last evaluated.", self._accuracy)

    def _counter(self, name: str, doc: str, value: float) -> Any:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(f"hpctrip_{name}", doc, labels=["run"])
        family.add_metric([self._run], value)
        return family

    def _gauge(self, name: str, doc: str, value: float) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"hpctrip_{name}", doc, labels=["run"])
        family.add_metric([self._run], value)
        return family


class RankMetrics:
    """What some ranks have spent by phase since this start of the run, as a collector of prometheus_client."""

    def __init__(self, run: str, ranks: Sequence[int]):
        """`run` is the label's value, `ranks` are those to tell of."""
        self._run, self._ranks = run, ranks
        self.totals = RankTotals.none(max(ranks) + 1)

    def collect(self) -> Iterator[Any]:
        """Seconds, and joules where the rank reads counters."""
        yield self._counter("phase_seconds", "Wall time of a rank.", self.totals.wall_s)
        if not np.isnan(self.totals.wall_j[:, self._ranks]).all():
            doc = "Measured energy of the machine whose counters the rank reads."
            yield self._counter("energy_joules", doc, self.totals.wall_j)

    def _counter(self, name: str, doc: str, totals: np.ndarray) -> Any:
        """`totals` [phases, ranks]; NaN: left out."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(f"hpctrip_{name}", doc, labels=["run", "rank", "phase"])
        for rank in self._ranks:
            for phase, total in zip(PHASES, totals[:, rank], strict=True):
                if total == total:
                    family.add_metric([self._run, str(rank), phase], total)
        return family
