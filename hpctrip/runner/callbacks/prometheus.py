"""Metrics for Prometheus, in a text file that node_exporter's textfile collector reads (the extra `[metrics]`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
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


def _power_w(recent: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """{machine: its mean power} in the last rounds, those without a joule left out: theirs are not known. A second of
    rounds, as the joules and the seconds of a short one do not end at the same moment."""
    powers_w = {}
    for host in recent[-1][1]:
        drawn = [
            (s, after.get(host, 0.0) - before.get(host, 0.0)) for (_, before), (s, after) in pairwise(recent)
        ]
        if known := [(seconds, joules) for seconds, joules in drawn if joules]:
            powers_w[host] = sum(joules for _, joules in known) / sum(seconds for seconds, _ in known)
    return powers_w


@CALLBACKS.add
class Prometheus(Callback):
    """Writes the file FILE.h5.prom on rank 0's machine, replaced atomically after a round: `hpctrip_rounds_total`,
    `hpctrip_round_seconds`, `hpctrip_accuracy` and more, with the label `run`, the name of the results file, FILE.h5.
    The wall time of every rank, `hpctrip_phase_seconds_total`, also has the labels `rank`, `host` and `phase`; the
    energy of every machine, `hpctrip_energy_joules_total`, has `host` and `phase`. These two count from this start of
    the run, the others from its first round. `hw_energy_joules_total` and `hw_power_watts` are the energy of every
    machine and its mean power in the last round, or in those of the last second, under OpenTelemetry's names
    (hw.energy and hw.power)."""

    kind: ClassVar[str] = "prometheus"
    folder: PathName | None = Field(None, min_length=1)
    """The folder that node_exporter reads on rank 0's machine (`--collector.textfile.directory`). Absent: that of the
    results FILE.h5."""

    _file: Path
    _label: dict[str, str]
    _hosts: dict[str, list[int]]
    """{machine: its ranks}."""
    _rounds: int = 0
    _samples: int = 0
    _round_s: float = 0.0
    _last: RoundRow | None = None
    _ended_at: float = 0.0
    """When the last round ended, in seconds since 1970."""
    _accuracy: float | None = None
    _is_running: bool = True
    _wall_s: np.ndarray
    _wall_j: np.ndarray
    """Totals of the ranks, [phases, ranks]."""
    _recent: list[tuple[float, dict[str, float]]]
    """(wall seconds, {machine: its joules since the start}) of the last rounds, and of the one before them."""
    _due: float = 0.0

    def check(self) -> None:
        """The package."""
        require('callbacks: kind = "prometheus"', "metrics", "prometheus_client")

    def start(self, run: RunFacts) -> None:
        """Write the counters as they stand; those of the run include the rounds of earlier starts."""
        folder = Path(self.folder) if self.folder else run.path.parent
        self._file = folder / f"{run.path.name}{SUFFIX}"
        what, hint = "not a file of metrics of hpctrip", f"remove it, or set callbacks.{self.kind}.folder"
        refuse_other(self._file, lambda text: text.startswith(b"# HELP hpctrip_"), what, hint)
        remove_leftovers(self._file)
        self._label, self._hosts, self._recent = {"run": run.path.name}, {}, [(0.0, {})]
        for rank, host in enumerate(run.hosts):
            self._hosts.setdefault(host, []).append(rank)
        self._wall_s = np.zeros((len(PHASES), len(run.hosts)))
        self._wall_j = np.full(self._wall_s.shape, np.nan)
        for row in run.rounds:
            self._count(row)
        self._write()

    def measured(self, wall_s: np.ndarray, wall_j: np.ndarray) -> None:
        """Replace the totals."""
        self._wall_s, self._wall_j = wall_s, wall_j

    def round(self, row: RoundRow) -> None:
        """Count a round. It is written at most a second later, as rounds may be shorter than that."""
        self._count(row)
        self._recent.append((row.wall_s, {host: float(j.sum()) for host, j in self._energy_j().items()}))
        while sum(seconds for seconds, _ in self._recent[2:]) >= _PACE_S:
            del self._recent[0]
        if time.monotonic() >= self._due:
            self._write()

    def end(self, status: str) -> None:
        """Write that the run has ended."""
        self._is_running = False
        self._write()

    def _count(self, row: RoundRow) -> None:
        self._rounds, self._samples = self._rounds + 1, self._samples + row.num_samples
        self._round_s, self._ended_at, self._last = self._round_s + row.wall_s, time.time(), row
        if row.eval_seen:
            self._accuracy = row.accuracy

    def _energy_j(self) -> dict[str, np.ndarray]:
        """{machine: joules by phase}, summed over its ranks that read counters; without machines on which none does."""
        by_host = {host: self._wall_j[:, ranks] for host, ranks in self._hosts.items()}
        return {host: np.nansum(j, axis=1) for host, j in by_host.items() if not np.isnan(j).all()}

    def _write(self) -> None:
        from prometheus_client import generate_latest

        replace_file(self._file, generate_latest(self), durable=False)
        self._due = time.monotonic() + _PACE_S

    def collect(self) -> Iterator[Any]:
        """Every metric, as prometheus_client asks a collector for them. Names and units follow Prometheus' conventions;
        a number that is not known is absent."""
        metrics = [
            ("counter", "rounds", "Rounds finished.", self._rounds),
            ("counter", "samples", "Samples trained on.", self._samples),
            ("gauge", "running", "1 until the run ends.", float(self._is_running)),
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
        seconds = [
            ({"rank": str(rank), "host": host, "phase": phase}, self._wall_s[at, rank])
            for host, ranks in self._hosts.items()
            for rank in ranks
            for at, phase in enumerate(PHASES)
        ]
        yield self._family("counter", "phase_seconds", "Wall time of a rank.", seconds)
        if energy_j := self._energy_j():
            joules = [
                ({"host": host, "phase": phase}, total)
                for host, totals in energy_j.items()
                for phase, total in zip(PHASES, totals, strict=True)
            ]
            yield self._family("counter", "energy_joules", "Measured energy of a machine.", joules)
            totals_j = {host: totals.sum() for host, totals in energy_j.items()}
            for kind, name, doc, by_host in (
                ("counter", "energy_joules", "Energy (OpenTelemetry's hw.energy).", totals_j),
                ("gauge", "power_watts", "Power (OpenTelemetry's hw.power).", _power_w(self._recent)),
            ):
                labels = [({"host": h, "hw_id": h, "hw_type": "host"}, value) for h, value in by_host.items()]
                yield self._family(kind, name, doc, labels, prefix="hw_")

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
