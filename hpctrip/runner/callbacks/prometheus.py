"""Metrics for Prometheus, in a text file that node_exporter's textfile collector reads (the extra `[metrics]`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from hpctrip.base.errors import require
from hpctrip.base.io import PathName, refuse_other, remove_leftovers, replace_file
from hpctrip.device.meter import PHASES
from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts
from hpctrip.sim.rounds import RoundRow

SUFFIX = ".prom"
"""The textfile collector reads the files of its folder that end like this."""
_PACE_S = 1.0
"""Seconds between two writings: a scrape every few seconds is usual."""


@CALLBACKS.add
class Prometheus(Callback):
    """Writes the file FILE.h5.prom on rank 0's machine, replaced atomically after a round: `hpctrip_rounds_total`,
    `hpctrip_round_seconds`, `hpctrip_accuracy` and more, with the label `run`, the name of the results file, FILE.h5.
    The wall time of every rank, `hpctrip_phase_seconds_total`, also has the labels `rank`, `host` and `phase`; the
    energy of every machine, `hpctrip_energy_joules_total`, has `host` and `phase`. These two count from this start of
    the run, the others from its first round. `hw_energy_joules_total` and `hw_power_watts` are the energy of every
    machine and its mean power in the last round under OpenTelemetry's names (hw.energy, hw.power)."""

    kind: ClassVar[str] = "prometheus"
    folder: PathName | None = Field(None, min_length=1)
    """The folder that node_exporter reads on rank 0's machine (`--collector.textfile.directory`). Absent: that of the
    results FILE.h5."""

    _file: Path
    _registry: Any
    _metrics: Metrics
    _due: float = 0.0

    def check(self) -> None:
        """The package."""
        require('callbacks: kind = "prometheus"', "metrics", "prometheus_client")

    def start(self, run: RunFacts) -> None:
        """Write the counters as they stand; those of the run include the rounds of earlier starts."""
        from prometheus_client import CollectorRegistry

        folder = Path(self.folder) if self.folder else run.path.parent
        self._file = folder / f"{run.path.name}{SUFFIX}"
        what, hint = "not a file of metrics of hpctrip", f"remove it, or set callbacks.{self.kind}.folder"
        refuse_other(self._file, lambda text: text.startswith(b"# HELP hpctrip_"), what, hint)
        remove_leftovers(self._file)
        self._registry, self._metrics = CollectorRegistry(), Metrics(run)
        self._registry.register(self._metrics)
        self._write()

    def measured(self, wall_s: np.ndarray, wall_j: np.ndarray) -> None:
        """Keep the totals of the ranks; they are written with the round, which follows."""
        self._metrics.measured(wall_s, wall_j)

    def round(self, row: RoundRow) -> None:
        """Count a round. It is written at most a second later, as rounds may be shorter than that."""
        self._metrics.count(row)
        if time.monotonic() >= self._due:
            self._write()

    def end(self, status: str) -> None:
        """Write that the run has ended."""
        self._metrics.is_running = False
        self._write()

    def _write(self) -> None:
        from prometheus_client import generate_latest

        replace_file(self._file, generate_latest(self._registry), durable=False)
        self._due = time.monotonic() + _PACE_S


class Metrics:
    """The totals of a run and of its ranks, as a collector of prometheus_client. Names and units follow Prometheus'
    conventions; a number that is not known is absent."""

    def __init__(self, run: RunFacts):
        self._label, self._hosts = {"run": run.path.name}, run.hosts
        self._rounds = self._samples = 0
        self._round_s = self._ended_at = 0.0
        self._last: RoundRow | None = None
        self._accuracy: float | None = None
        self.is_running = True
        self.wall_s = np.zeros((len(PHASES), len(run.hosts)))
        self.wall_j = np.full(self.wall_s.shape, np.nan)
        self._power_w: dict[str, float] = {}
        for row in run.rounds:
            self.count(row)

    def measured(self, wall_s: np.ndarray, wall_j: np.ndarray) -> None:
        """Replace the totals [phases, ranks]; the power of a machine is that since they were last replaced."""
        before_j, before_s = self._energy_by_host(), self.wall_s.sum(axis=0)
        self.wall_s, self.wall_j = wall_s, wall_j
        for host, joules in self._energy_by_host().items():
            ranks = [rank for rank, name in enumerate(self._hosts) if name == host]
            if (seconds := float((wall_s.sum(axis=0) - before_s)[ranks].max())) > 0:
                self._power_w[host] = (joules - before_j.get(host, 0.0)) / seconds

    def _energy_by_host(self) -> dict[str, float]:
        energy_j: dict[str, float] = {}
        for labels, joules in self._energy_joules():
            energy_j[labels["host"]] = energy_j.get(labels["host"], 0.0) + joules
        return energy_j

    def count(self, row: RoundRow) -> None:
        """Add a round."""
        self._rounds, self._samples = self._rounds + 1, self._samples + row.num_samples
        self._round_s, self._ended_at, self._last = self._round_s + row.wall_s, time.time(), row
        if row.eval_seen:
            self._accuracy = row.accuracy

    def collect(self) -> Iterator[Any]:
        """Every metric."""
        metrics = [
            ("counter", "rounds", "Rounds finished.", self._rounds),
            ("counter", "samples", "Samples trained on.", self._samples),
            ("gauge", "running", "1 until the run ends.", float(self.is_running)),
        ]
        if row := self._last:
            metrics += [
                ("gauge", "last_round_timestamp_seconds", "When the last round ended.", self._ended_at),
                ("gauge", "simulated_seconds", "The virtual clock.", row.clock_s),
                ("gauge", "cohort_sites", "Sites of the last cohort.", row.num_sites),
                ("gauge", "arrived_sites", "Sites of it whose updates arrived.", row.num_arrived),
            ]
        if self._accuracy is not None:
            metrics.append(("gauge", "accuracy", "Held-out accuracy, as last evaluated.", self._accuracy))
        for kind, name, doc, value in metrics:
            yield self._family(kind, name, doc, [({}, value)])
        rounds = self._family("summary", "round_seconds", "Wall time of a round.", ())
        rounds.add_sample(f"{rounds.name}_count", self._label, self._rounds)
        rounds.add_sample(f"{rounds.name}_sum", self._label, self._round_s)
        yield rounds
        yield self._family("counter", "phase_seconds", "Wall time of a rank.", self._phase_seconds())
        if joules := list(self._energy_joules()):
            yield self._family("counter", "energy_joules", "Measured energy of a machine.", joules)
            for kind, name, doc, by_host in (
                ("counter", "energy_joules", "Energy (OpenTelemetry's hw.energy).", self._energy_by_host()),
                ("gauge", "power_watts", "Power (OpenTelemetry's hw.power).", self._power_w),
            ):
                labels = [({"host": h, "hw_id": h, "hw_type": "host"}, value) for h, value in by_host.items()]
                yield self._family(kind, name, doc, labels, prefix="hw_")

    def _phase_seconds(self) -> Iterator[tuple[dict[str, str], float]]:
        for rank, (host, seconds) in enumerate(zip(self._hosts, self.wall_s.T, strict=True)):
            for phase, total_s in zip(PHASES, seconds, strict=True):
                yield {"rank": str(rank), "host": host, "phase": phase}, total_s

    def _energy_joules(self) -> Iterator[tuple[dict[str, str], float]]:
        """Summed over the ranks of a host that read counters: one of each machine does."""
        for host in dict.fromkeys(self._hosts):
            ranks = [rank for rank, name in enumerate(self._hosts) if name == host]
            for phase, joules in zip(PHASES, self.wall_j[:, ranks], strict=True):
                if not np.isnan(joules).all():
                    yield {"host": host, "phase": phase}, np.nansum(joules)

    def _family(
        self,
        kind: str,
        name: str,
        doc: str,
        samples: Iterable[tuple[dict[str, str], float]],
        prefix: str = "hpctrip_",
    ) -> Any:
        """A metric with samples of ({label: value}, value), all labelled with the run."""
        from prometheus_client.core import Metric

        family = Metric(f"{prefix}{name}", doc, kind)
        for labels, value in samples:
            sample = f"{family.name}_total" if kind == "counter" else family.name
            family.add_sample(sample, self._label | labels, value)
        return family
