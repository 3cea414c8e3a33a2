"""One setting, tried: rounds of the real engine on this machine, until the time of a sample is known well enough."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hpctrip.base.errors import HpctripError
from hpctrip.base.stats import mean_interval
from hpctrip.device.meter import Meter, open_meter
from hpctrip.device.settings import SettingsProcess
from hpctrip.ranks.device import choose_device, gpu_identity
from hpctrip.ranks.serial import SerialRanks
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import Experiment, read_input
from hpctrip.runner.host import Host, ServerStep
from hpctrip.runner.metering import Energy
from hpctrip.sim.rounds import RoundRow
from hpctrip.sim.step import State

Keys = Mapping[str, Any]
"""{dotted input key: value}; empty: the input as it is."""
WARM_UP = 1
"""Rounds that are not counted: kernels are chosen, memory is fetched, graphs are captured."""
_FIRST_LOOK = 4
"""A trial that is too short for its accuracy to count says only who falls out: it is over after so many times the
rounds that it is given, however little is known by then."""


@dataclass(frozen=True)
class Trial:
    """What came of one setting."""

    keys: Keys
    num_rounds: int = 0
    """Rounds that count."""
    sample_s: float = math.nan
    """Mean seconds of training for one sample."""
    error: float = math.nan
    """Half width of its 95 % interval, or that of the joules where it is wider, as a share of the mean."""
    sample_j: float = math.nan
    """Joules of training for one sample; NaN: nothing counts them here, or the counter stood still."""
    accuracy: float = math.nan
    """After the fixed number of rounds; NaN: it did not come so far."""
    failure: str = ""
    """Why it could not be tried."""

    @property
    def watts(self) -> float:
        """Mean draw while training."""
        return self.sample_j / self.sample_s

    @property
    def words(self) -> str:
        """The setting, for people."""
        return ", ".join(f"{key} = {value}" for key, value in self.keys.items()) or "as the input says"


@dataclass(frozen=True)
class Bench:
    """Where settings are tried: an input on the one device of this process."""

    paths: tuple[str, ...]
    overrides: tuple[str, ...]
    plugins: tuple[str, ...]
    accuracy_round: int
    """The round whose accuracy counts."""
    error: float
    """A trial is over when the half width of its intervals is below this share of the mean."""
    most_rounds: int
    """Or after so many rounds, the first aside."""
    device: torch.device = field(init=False)
    gpus: list[str] = field(init=False)
    """UUID of the device, where it is a GPU."""
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        experiment = self.experiment({})
        device = choose_device(experiment.ranks.device, SerialRanks())
        gpu = gpu_identity(device)
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "gpus", [gpu] if gpu else [])
        object.__setattr__(self, "meter", open_meter(experiment.meter, self.gpus))

    def experiment(self, keys: Keys) -> Experiment:
        """The input with a setting laid over it, without an end of its own. Raises InputError."""
        rules = {
            "stop.target_accuracy": "none",
            "stop.max_rounds": 1_000_000,
            "evaluate.every_rounds": self.accuracy_round,
        }
        lines = [f"{key}={json.dumps(value)}" for key, value in {**keys, **rules}.items()]
        return read_input(self.paths, [*self.overrides, *lines], self.plugins).experiment

    def tried(self, keys: Keys, least_rounds: int) -> Trial:
        """At least so many rounds of a setting beyond the first, from the beginning. What cannot be trained has
        failed."""
        is_first_look = WARM_UP + least_rounds < self.accuracy_round
        most_rounds = _FIRST_LOOK * least_rounds if is_first_look else self.most_rounds
        try:
            with closing(self._rounds(keys)) as rounds:
                rows = [next(rounds) for _ in range(WARM_UP + least_rounds)]
                while len(rows) - WARM_UP < most_rounds and _error(rows[WARM_UP:]) > self.error:
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
        """Round after round, as a run trains them, without its files; its GPU's settings are put back at the end.
        Raises HpctripError where they are refused."""
        experiment = self.experiment(keys)
        with ExitStack() as until_over:
            if experiment.knobs.any:
                applied = until_over.enter_context(SettingsProcess(self.gpus)).apply(experiment.knobs)
                if applied.refused or not self.gpus:
                    raise HpctripError(applied.refused[0] if applied.refused else "no GPU trains here")
            yield from self._trained(experiment)

    def _trained(self, experiment: Experiment) -> Iterator[RoundRow]:
        torch.set_num_threads(experiment.ranks.threads)
        task = experiment.workload.checked_task(experiment.seed)
        energy = Energy(self.meter, num_machines=1)
        host = Host(
            experiment, experiment.num_sites(), task, SerialRanks(), self.device, self.device.type, energy
        )
        self.meter.round_uj()  # what was drawn before is nobody's
        aggregator = Aggregator(host)
        state, params = State(), host.initial_params
        while True:
            draft, assignment = aggregator.begin(state)
            hosted = host.train(params, assignment)
            step = ServerStep(host, params, assignment)
            with host.wall.phase("exchange", draft.round):
                new, tail = host.ranks.combine(hosted, len(params), step)
            counts = host.ranks.total(host.evaluate(new, assignment, step.mean_update_norm))
            state, params = aggregator.finish(draft, new - params, tail, counts), new
            yield state.history.rows[-1]


def _error(rows: list[RoundRow]) -> float:
    """Relative half width of the time and, where it is known, of the energy of a sample: the wider one. Infinite for
    one round, so that there is a second, and for rounds so short that a counter has not moved."""
    if len(rows) < 2:
        return math.inf
    found = np.array([[row.train_wall_s, row.train_wall_j] for row in rows]) / [
        [row.num_samples] for row in rows
    ]
    known = [values for values in found.T if not np.isnan(values).any()]
    return max(half / mean if mean > 0 else math.inf for mean, half in map(mean_interval, known))
