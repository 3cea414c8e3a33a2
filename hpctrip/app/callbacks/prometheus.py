"""Metrics for Prometheus, as a text file that node_exporter's textfile collector reads (the extra `[metrics]`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from hpctrip.app.callbacks.base import CALLBACKS, Callback, RunFacts, require
from hpctrip.base.files import PathName
from hpctrip.base.output import replace_file
from hpctrip.device.meter import PHASES
from hpctrip.sim.rounds import RoundRow

SUFFIX = ".prom"
"""What the textfile collector reads in its folder, and nothing else."""
_PACE_S = 1.0
"""Between two writings: a scrape every few seconds is usual."""


@CALLBACKS.add
class Prometheus(Callback):
    """Writes counters of the run, replaced as a whole after every round: `hpctrip_rounds_total`,
    `hpctrip_phase_seconds_total`, `hpctrip_energy_joules_total`, `hpctrip_accuracy` and more, each with the label
    `run`, the name of the results file."""

    kind: ClassVar[str] = "prometheus"
    path: PathName | None = Field(None, min_length=1)
    """The file, in the folder that node_exporter is told of (`--collector.textfile.directory`), a file of this run's
    own; its name ends in `.prom`. Absent: FILE.h5.prom beside the results FILE.h5."""

    _file: Path
    _metrics: Metrics
    _registry: Any
    _due: float = 0.0

    @field_validator("path")
    @classmethod
    def _read_by_the_collector(cls, path: str | None) -> str | None:
        if path is not None and not path.endswith(SUFFIX):
            raise ValueError(f"must end in {SUFFIX}: the textfile collector reads no other file")
        return path

    def check(self) -> None:
        """The package."""
        require(self.kind, "metrics", "prometheus_client")

    def start(self, run: RunFacts) -> None:
        """The counters as they stand: they go on where an earlier start has ended."""
        from prometheus_client import CollectorRegistry

        self._file = Path(self.path).expanduser() if self.path else Path(f"{run.path}{SUFFIX}")
        self._metrics = Metrics(run.path.stem)
        for row in run.rounds:
            self._metrics.count(row)
        self._registry = CollectorRegistry()
        self._registry.register(self._metrics)
        self._write()

    def round(self, row: RoundRow) -> None:
        """One more; the file follows at most a second later than rounds that end sooner than that."""
        self._metrics.count(row)
        if time.monotonic() >= self._due:
            self._write()

    def end(self, status: str) -> None:
        """The run is not running any more."""
        self._metrics.is_running = False
        self._write()

    def _write(self) -> None:
        from prometheus_client import generate_latest

        replace_file(self._file, generate_latest(self._registry), durable=False)
        self._due = time.monotonic() + _PACE_S


class Metrics:
    """The totals of a run, as a collector of prometheus_client. Names and units after Prometheus' conventions."""

    def __init__(self, run: str):
        """`run` is the label's value."""
        self._run = run
        self.is_running = True
        self._rounds = self._samples = 0
        self._wall_s = self._ended_at = 0.0
        self._phase_s = dict.fromkeys(PHASES, 0.0)
        self._phase_j = dict.fromkeys(PHASES, 0.0)
        self._is_measured = False
        self._last: RoundRow | None = None
        self._accuracy: float | None = None

    def count(self, row: RoundRow) -> None:
        """Add a round."""
        self._rounds, self._samples = self._rounds + 1, self._samples + row.num_samples
        self._wall_s, self._ended_at, self._last = self._wall_s + row.wall_s, time.time(), row
        if row.eval_seen:
            self._accuracy = row.accuracy
        is_measured = row.wall_j == row.wall_j
        self._is_measured = self._is_measured or is_measured
        for phase in PHASES:
            self._phase_s[phase] += getattr(row, f"{phase}_wall_s")
            if is_measured:
                self._phase_j[phase] += getattr(row, f"{phase}_wall_j")

    def collect(self) -> Iterator[Any]:
        """Every metric; what is not known is absent."""
        from prometheus_client.core import SummaryMetricFamily

        yield self._counter("rounds", "Rounds finished.", {"": self._rounds})
        rounds = SummaryMetricFamily("hpctrip_round_seconds", "Wall time of a round.", labels=["run"])
        rounds.add_metric([self._run], self._rounds, self._wall_s)
        yield rounds
        yield self._counter("phase_seconds", "Wall time by phase of the round.", self._phase_s)
        yield self._counter("samples", "Samples trained on.", {"": self._samples})
        if self._is_measured:
            yield self._counter(
                "energy_joules", "Measured energy of the run's machines by phase.", self._phase_j
            )
        yield self._gauge("running", "1 while the run goes on.", float(self.is_running))
        if self._last is None:
            return
        yield self._gauge("last_round_timestamp_seconds", "When the last round ended.", self._ended_at)
        yield self._gauge("simulated_seconds", "The virtual clock.", self._last.clock_s)
        yield self._gauge("cohort_sites", "Sites of the last cohort.", self._last.num_sites)
        yield self._gauge("arrived_sites", "Sites of it whose updates arrived.", self._last.num_arrived)
        if self._accuracy is not None:
            yield self._gauge("accuracy", "Held-out accuracy, as last evaluated.", self._accuracy)

    def _counter(self, name: str, doc: str, values: dict[str, float]) -> Any:
        """One value, or one by phase."""
        from prometheus_client.core import CounterMetricFamily

        by_phase = "" not in values
        family = CounterMetricFamily(f"hpctrip_{name}", doc, labels=["run", "phase"] if by_phase else ["run"])
        for phase, value in values.items():
            family.add_metric([self._run, phase] if by_phase else [self._run], value)
        return family

    def _gauge(self, name: str, doc: str, value: float) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"hpctrip_{name}", doc, labels=["run"])
        family.add_metric([self._run], value)
        return family
