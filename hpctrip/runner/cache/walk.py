"""Rounds that are known, followed: a simulation asks, round after round, whether somebody has trained the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpctrip.runner.cache.trajectory import Node, came_back, key_after
from hpctrip.runner.cache.writer import key_of
from hpctrip.runner.experiment import Experiment
from hpctrip.sim.rounds import History
from hpctrip.sim.step import Draft, Simulation, State

Find = Callable[[Draft, str, bool], Node | None]
"""(a round, its key, is its model evaluated) -> the round as it was trained; None: not known."""


@dataclass(frozen=True)
class Path:
    """The rounds of a run so far."""

    state: State
    keys: list[str]
    """After every round, from round 0 on."""
    digests: list[str]
    """Of the models after those rounds that were taken: the last ones."""

    @property
    def is_over(self) -> bool:
        """Whether a stop rule has ended the run: else its next round is not known."""
        return bool(self.state.stop_reason)

    def cut(self, round: int) -> State:
        """The state after an earlier round."""
        if round == self.state.round:
            return self.state
        rows = self.state.history.rows[:round]
        return State(round, rows[-1].clock_s, History(rows)) if rows else State()


def walk(path: Path, experiment: Experiment, simulation: Simulation, find: Find) -> Path:
    """The path as far as rounds are found. `simulation` is that of `experiment`."""
    state, keys, digests = path.state, [*path.keys], []
    while not state.stop_reason:
        draft = simulation.begin(state)
        key = key_of(draft, keys[-1])
        evaluated = experiment.evaluate.due(draft.round, experiment.stop.max_rounds)
        node = find(draft, key, evaluated)
        if node is None:
            break
        state, _ = simulation.finish(draft, node.outcome(draft, evaluated))
        keys.append(key)
        digests.append(node.params_digest)
    return Path(state, keys, digests)


def usable(node: Node | None, evaluated: bool) -> Node | None:
    """The node, unless its model was not evaluated and is to be."""
    return node if node is not None and (node.eval_seen or not evaluated) else None


def trail(key: str, simulation: Simulation, history: History) -> list[str]:
    """The keys after round 0 (`key`) and after every round of a history."""
    keys = [key]
    for row in history.rows:
        arrived = came_back(row.cohort.status)
        weights = simulation.weights(row.cohort.site, arrived)
        sites = row.cohort.site[arrived]
        keys.append(key_after(keys[-1], row.round, sites, weights[arrived], row.local_work))
    return keys


def nodes(key: str, simulation: Simulation, history: History) -> dict[str, Node]:
    """{key: round} of a history that begins at `key`, in order; the digests of its models are not known."""
    keys = trail(key, simulation, history)[1:]
    return {key: Node.of(key, row, "") for key, row in zip(keys, history.rows, strict=True)}
