"""What was trained so far, and what any run would take whose sites have all been trained: arithmetic of the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpctrip.app.experiment import Experiment
from hpctrip.app.known import Path, nodes, usable, walk
from hpctrip.app.learning import learned_tables
from hpctrip.base.errors import InputError
from hpctrip.base.identity import identity
from hpctrip.record.reader import Run
from hpctrip.record.trajectory import Node
from hpctrip.sim.step import State


@dataclass(frozen=True)
class Reached:
    """How far a run gets."""

    clock_s: float
    """To the target, or spent in all."""
    target: bool
    """Whether it reaches the target."""


@dataclass
class _Learned:
    """What is known of one learning input."""

    num_params: int
    num_samples: np.ndarray
    """Of every site, [N]."""
    rounds: dict[str, Node] = field(default_factory=dict)


class Known:
    """The rounds of finished runs. Those of one learning input (data, partition, seed and whatever else training sees)
    are known to all runs that have it."""

    def __init__(self) -> None:
        self._learned: dict[str, _Learned] = {}

    def add(self, experiment: Experiment, run: Run) -> None:
        """Take up the rounds of a run, whose results file is whole. Raises InputError where it has no cohorts."""
        if run.cohorts.empty:
            raise InputError(str(run.path), "was imported without its cohorts", "make the run here")
        sizes = run.sites["num_samples"].to_numpy()
        start = _start(experiment)
        learned = self._learned.setdefault(start, _Learned(run.meta["num_params"], sizes))
        simulation = experiment.simulation(learned.num_params, sizes)
        learned.rounds |= nodes(start, simulation, run.history())

    def reached(self, experiment: Experiment) -> Reached | None:
        """How far the run of this input gets; None where it comes to a round that nobody has trained."""
        start = _start(experiment)
        learned = self._learned.get(start)
        if learned is None:
            return None
        simulation = experiment.simulation(learned.num_params, learned.num_samples)
        path = walk(
            Path(State(), [start], []),
            experiment,
            simulation,
            lambda draft, key, evaluated: usable(learned.rounds.get(key), evaluated),
        )
        if not path.is_over:
            return None
        target = experiment.stop.target_accuracy
        row = path.state.history.last
        return Reached(path.state.clock_s, bool(row and target is not None and row.accuracy >= target))


def _start(experiment: Experiment) -> str:
    return identity(learned_tables(experiment))
