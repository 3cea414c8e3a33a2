"""What is tried in which order, and what is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from hpctrip.base.errors import HpctripError
from hpctrip.device.counters import Unavailable
from hpctrip.tune.dials import CAP, CLOCK, dials
from hpctrip.tune.search import Cost, by_eta, front, halving
from hpctrip.tune.spaces import candidates
from hpctrip.tune.trial import Bench, Keys, Trial

FIRST_ROUNDS = 2
_COSTS: tuple[Cost, ...] = (attrgetter("sample_s"), attrgetter("sample_j"))


@dataclass(frozen=True)
class Goal:
    """What is looked for."""

    accuracy_bound: float
    """A setting may cost so much accuracy, against the input as it is."""
    eta: float
    """Zeus' weight of energy against time, 0 to 1."""


@dataclass(frozen=True)
class Tuned:
    """What was found."""

    trials: list[Trial]
    """Those that were tried to the end, the input as it is first."""
    fell_out: list[Trial]
    """The others: too slow and too costly, or failed."""
    best: dict[str, Trial]
    """By "time", and where joules are known by "joules" and "eta", among those that are accurate enough."""
    notes: list[str]

    @property
    def curve(self) -> list[Trial]:
        """Those that tell what power is worth here: one setting under several caps or clocks, by their draw."""
        dialled = [t for t in self.trials if CAP in t.keys or CLOCK in t.keys]
        return sorted((t for t in dialled if not math.isnan(t.watts)), key=lambda t: t.watts)


def tune(
    bench: Bench,
    goal: Goal,
    spaces: Sequence[Sequence[Keys]],
    knobs: bool,
    say: Callable[[str], None],
) -> Tuned:
    """Try the combinations of `spaces`, then, where `knobs`, the GPU's power caps and clocks with the best of them.
    `say` is told of every trial. Raises HpctripError where the input as it is cannot be trained."""

    def tried(keys: Keys, rounds: int) -> Trial:
        trial = bench.tried(keys, rounds)
        say(_line(trial))
        return trial

    notes = [f"energy: {bench.meter.description}"]
    trials, fell_out = halving(candidates(spaces), tried, _COSTS, FIRST_ROUNDS, bench.accuracy_round)
    if not trials or trials[0].keys:
        broken = next((t.failure for t in fell_out if not t.keys), "")
        raise HpctripError(f"the input as it is cannot be trained here: {broken}")
    if knobs and bench.gpus and not math.isnan(trials[0].sample_j):
        etas = [by_eta(eta, _most_w(trials)) for eta in (goal.eta, 1.0)]
        start = min(_accurate(trials, goal), key=etas[0])
        for dial in dials(bench.gpus[0]):
            try:
                trials += dial().turned(start.keys, etas, lambda keys: tried(keys, bench.accuracy_round))
            except (Unavailable, HpctripError) as refused:
                notes.append(f"not tried: {refused}")
    if len(trials) > 1:
        notes += _unrest(trials[0], tried({}, bench.accuracy_round))
    return Tuned(trials, fell_out, dict(_best(trials, goal)), notes)


def _unrest(first: Trial, again: Trial) -> Iterator[str]:
    """What to say where the input as it is does not take as long at the end as it did at first."""
    ratio = again.sample_s / first.sample_s
    if abs(ratio - 1) > math.hypot(again.error, first.error):
        yield (
            f"warning: at the end the input as it is takes {ratio:.2f} times as long for a sample as at first: the "
            "machine is not quiet, and settings that were tried at different times do not compare"
        )


def _accurate(trials: Sequence[Trial], goal: Goal) -> Iterator[Trial]:
    """The first, and those that lose no more accuracy against it than may be."""
    floor = trials[0].accuracy - goal.accuracy_bound
    return (trial for trial in trials if trial is trials[0] or trial.accuracy >= floor)


def _best(trials: Sequence[Trial], goal: Goal) -> Iterator[tuple[str, Trial]]:
    accurate = list(_accurate(trials, goal))
    yield "time", min(accurate, key=lambda t: t.sample_s)
    if front(accurate):
        yield "joules", min(accurate, key=lambda t: t.sample_j)
        yield "eta", min(accurate, key=by_eta(goal.eta, _most_w(trials)))


def _most_w(trials: Sequence[Trial]) -> float:
    """The largest draw that was measured; 1 where none was: time alone then decides."""
    return max((t.watts for t in trials if not math.isnan(t.watts)), default=1.0)


def _line(trial: Trial) -> str:
    if trial.failure:
        return f"{trial.words}: not possible: {trial.failure}"
    joules = (
        "" if math.isnan(trial.sample_j) else f", {1 / trial.sample_j:.4g} samples/J at {trial.watts:.1f} W"
    )
    error = "" if math.isinf(trial.error) else f" (+-{trial.error:.1%})"
    accuracy = "" if math.isnan(trial.accuracy) else f", accuracy {trial.accuracy:.3f}"
    speed = f"{1 / trial.sample_s:,.1f} samples/s{error}"
    return f"{trial.words}: {speed}{joules}{accuracy}, {trial.num_rounds} round(s)"
