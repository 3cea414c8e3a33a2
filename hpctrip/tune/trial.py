"""Trials of `tune`: rounds of the real engine on this machine, until a sample's time is measured precisely enough."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpctrip.base.errors import HpctripError
from hpctrip.base.stats import mean_interval
from hpctrip.device.meter import open_meter
from hpctrip.device.settings import holding
from hpctrip.ranks.base import Ranks, choose_device, gpu_identity
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import Experiment, read_input
from hpctrip.runner.host import Host
from hpctrip.runner.loop import train_round
from hpctrip.sim.rounds import RoundRow
from hpctrip.sim.step import State

Keys = Mapping[str, Any]
"""A setting: {dotted input key: value} to lay over the input; empty: the original input."""
WARM_UP = 1
"""Number of first rounds that are not counted: in them kernels are chosen, memory is allocated, graphs are captured."""
_EARLY_FACTOR = 4
"""Longest early trial, as a multiple of its `min_rounds`. Early trials, too short to compare accuracies, only decide
which candidates to eliminate, so they end there however large the error still is."""


@dataclass(frozen=True)
class Trial:
    """The measurements of one setting."""

    keys: Keys
    num_rounds: int = 0
    """Number of counted rounds."""
    sample_s: float = math.nan
    """Mean training time per sample in seconds."""
    error: float = math.nan
    """Relative half width of the 95 % interval of `sample_s` or of `sample_j`, whichever is larger."""
    sample_j: float = math.nan
    """Mean training energy per sample in joules; NaN: this machine has no energy counter, or it did not advance."""
    accuracy: float = math.nan
    """Accuracy after round `TrialRunner.accuracy_round`; NaN: the trial was shorter."""
    failure: str = ""
    """Why the setting could not be measured; empty: it was."""

    @property
    def watts(self) -> float:
        """Mean power draw while training."""
        return self.sample_j / self.sample_s

    @property
    def setting_text(self) -> str:
        """The setting as text."""
        return ", ".join(f"{key} = {value}" for key, value in self.keys.items()) or "as the input says"


class TrialRunner:
    """Runs trials: trains an input under different settings on the device of this process.

    Accuracies are compared after the round `accuracy_round`. A trial ends when its relative error, see `Trial.error`,
    is at most `error`, or after `max_rounds` rounds, not counting the warm-up.
    """

    def __init__(
        self,
        paths: Sequence[str],
        overrides: Sequence[str],
        plugins: Sequence[str],
        accuracy_round: int,
        error: float,
        max_rounds: int,
    ):
        self.paths, self.overrides, self.plugins = paths, overrides, plugins
        self.accuracy_round, self.error, self.max_rounds = accuracy_round, error, max_rounds
        experiment = self.experiment({})
        self.device = choose_device(experiment.ranks.device, Ranks())
        gpu = gpu_identity(self.device)
        self.gpus = [gpu] if gpu else []
        """UUID of the device if it is a GPU, else empty."""
        self.meter = open_meter(experiment.meter, self.gpus)

    def experiment(self, keys: Keys) -> Experiment:
        """The input with a setting laid over it, and without its stop rules. Raises InputError."""
        rules = {"stop.target_accuracy": "none", "stop.max_rounds": 1_000_000}
        rules["evaluate.every_rounds"] = self.accuracy_round
        lines = [f"{key}={json.dumps(value)}" for key, value in {**keys, **rules}.items()]
        return read_input(self.paths, [*self.overrides, *lines], self.plugins).experiment

    def run(self, keys: Keys, min_rounds: int) -> Trial:
        """Train from the beginning under a setting, at least `min_rounds` rounds after the warm-up. If that is not
        possible, the returned trial has a `failure`."""
        is_early = WARM_UP + min_rounds < self.accuracy_round
        max_rounds = _EARLY_FACTOR * min_rounds if is_early else self.max_rounds
        try:
            with closing(self._rounds(keys)) as rounds:
                rows = [next(rounds) for _ in range(WARM_UP + min_rounds)]
                while len(rows) - WARM_UP < max_rounds and _error(rows[WARM_UP:]) > self.error:
                    rows.append(next(rounds))
        except (HpctripError, torch.OutOfMemoryError) as failure:
            return Trial(keys, failure=str(failure).splitlines()[0])
        finally:
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        counted, at = rows[WARM_UP:], self.accuracy_round - 1
        samples = sum(row.num_samples for row in counted)
        return Trial(
            keys,
            num_rounds=len(counted),
            sample_s=sum(row.train_wall_s for row in counted) / samples,
            error=_error(counted),
            sample_j=sum(row.train_wall_j for row in counted) / samples or math.nan,
            accuracy=rows[at].accuracy if at < len(rows) else math.nan,
        )

    def _rounds(self, keys: Keys) -> Generator[RoundRow, None, None]:
        """Train round after round as a run does, without writing files; the GPU's settings are restored at the end.
        Raises HpctripError if a GPU setting is refused."""
        experiment, ranks = self.experiment(keys), Ranks()
        with holding(experiment.knobs, self.gpus) as applied:
            if applied.refused:
                raise HpctripError(applied.refused[0])
            torch.set_num_threads(experiment.ranks.threads)
            task, num_sites = (
                experiment.workload.checked_task(experiment.seed),
                experiment.checked_num_sites(),
            )
            host = Host(experiment, num_sites, task, ranks, self.device, self.device.type, self.meter)
            host.agree()
            self.meter.round_uj()  # discards the energy of what came before
            aggregator = Aggregator(host, num_machines=1)
            state, params = State(), host.initial_params
            while True:
                draft, assignment = aggregator.begin(state)
                new, tail, counts = train_round(host, params, assignment)
                state, params = aggregator.finish(draft, params, new, tail, counts), new
                yield state.history.rows[-1]


def _error(rows: list[RoundRow]) -> float:
    """Relative half width of the 95 % interval of a sample's time or, if measured, of its energy, whichever is larger.
    It is infinite for one round, so that there is a second, and while an energy counter has not advanced."""
    if len(rows) < 2:
        return math.inf
    samples = np.array([[row.num_samples] for row in rows])
    costs = np.array([[row.train_wall_s, row.train_wall_j] for row in rows]) / samples
    measured = [values for values in costs.T if not np.isnan(values).any()]
    return max(half / mean if mean > 0 else math.inf for mean, half in map(mean_interval, measured))
