"""The tuning procedure: the order of the trials, and the choice of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from hpctrip.base.errors import HpctripError
from hpctrip.device.counters import Unavailable
from hpctrip.tune.search import Cost, pareto_front, search_values, successive_halving, zeus_cost
from hpctrip.tune.spaces import CAP, CLOCK, candidates, gpu_values
from hpctrip.tune.trial import Keys, Trial, TrialRunner

FIRST_ROUNDS = 2
"""Rounds of the first trials of successive halving."""
_COSTS: tuple[Cost, ...] = (attrgetter("sample_s"), attrgetter("sample_j"))


@dataclass(frozen=True)
class TuneResult:
    """All trials of a tuning, and the best of them."""

    trials: list[Trial]
    """Trials of the settings that were measured to the end, first the original input."""
    eliminated: list[Trial]
    """The other trials: too slow and too costly, or failed."""
    best: dict[str, Trial]
    """{objective: best trial} among those that are accurate enough, by "time" and, if joules were measured, by "joules"
    and "eta"."""
    notes: list[str]
    """Lines for the user: the energy counter, settings that the GPU refused, warnings."""

    @property
    def curve(self) -> list[Trial]:
        """Trials of one setting under several power caps or clocks, in order of power draw."""
        limited = [t for t in self.trials if CAP in t.keys or CLOCK in t.keys]
        return sorted((t for t in limited if not math.isnan(t.watts)), key=lambda t: t.watts)


def tune(
    runner: TrialRunner,
    accuracy_bound: float,
    eta: float,
    spaces: Sequence[Sequence[Keys]],
    knobs: bool,
    report: Callable[[str], None],
) -> TuneResult:
    """Measure all combinations of `spaces`, then, if `knobs`, power caps and clocks of the GPU with the best of them.

    The best settings lose at most `accuracy_bound` of accuracy against the original input; `eta` is Zeus' weight of
    energy against time, 0 to 1. `report` is called with one line of text per trial. Raises HpctripError if the
    original input cannot be trained.
    """

    def run_final(keys: Keys) -> Trial:
        return run_trial(keys, runner.accuracy_round)

    def run_trial(keys: Keys, rounds: int) -> Trial:
        trial = runner.run(keys, rounds)
        report(_trial_line(trial))
        return trial

    notes = [f"energy: {runner.meter.description}"]
    trials, eliminated = successive_halving(
        candidates(spaces), run_trial, _COSTS, FIRST_ROUNDS, runner.accuracy_round
    )
    if not trials or trials[0].keys:
        failure = next((t.failure for t in eliminated if not t.keys), "")
        raise HpctripError(f"the original input cannot be trained here: {failure}")
    if knobs and runner.gpus and not math.isnan(trials[0].sample_j):
        costs = [zeus_cost(weight, _max_w(trials)) for weight in (eta, 1.0)]
        start = min(_accurate_trials(trials, accuracy_bound), key=costs[0])
        for key in (CAP, CLOCK):
            try:
                values = gpu_values(key, runner.gpus[0])
                trials += search_values(key, values, start.keys, costs, run_final)
            except (Unavailable, HpctripError) as refused:
                notes.append(f"not tried: {refused}")
    if len(trials) > 1:
        notes += _drift_warning(trials[0], run_final({}))
    return TuneResult(trials, eliminated, dict(_best_trials(trials, accuracy_bound, eta)), notes)


def _drift_warning(first: Trial, again: Trial) -> Iterator[str]:
    """Warn if the original input takes another time at the end than at first."""
    ratio = again.sample_s / first.sample_s
    if abs(ratio - 1) > math.hypot(again.error, first.error):
        yield (
            f"warning: at the end the original input takes {ratio:.2f} times as long for a sample as at first: the "
            "machine is not quiet, and settings that were tried at different times do not compare"
        )


def _accurate_trials(trials: Sequence[Trial], accuracy_bound: float) -> Iterator[Trial]:
    """The first trial, and those that lose at most `accuracy_bound` of accuracy against it."""
    floor = trials[0].accuracy - accuracy_bound
    return (trial for trial in trials if trial is trials[0] or trial.accuracy >= floor)


def _best_trials(trials: Sequence[Trial], accuracy_bound: float, eta: float) -> Iterator[tuple[str, Trial]]:
    accurate = list(_accurate_trials(trials, accuracy_bound))
    yield "time", min(accurate, key=lambda t: t.sample_s)
    if pareto_front(accurate):
        yield "joules", min(accurate, key=lambda t: t.sample_j)
        yield "eta", min(accurate, key=zeus_cost(eta, _max_w(trials)))


def _max_w(trials: Sequence[Trial]) -> float:
    """Largest measured power draw in watts; 1 if none was measured, so that time alone decides."""
    return max((t.watts for t in trials if not math.isnan(t.watts)), default=1.0)


def _trial_line(trial: Trial) -> str:
    if trial.failure:
        return f"{trial.setting_text}: not possible: {trial.failure}"
    text = f"{trial.setting_text}: {1 / trial.sample_s:,.1f} samples/s"
    if not math.isinf(trial.error):
        text += f" (+-{trial.error:.1%})"
    if not math.isnan(trial.sample_j):
        text += f", {1 / trial.sample_j:.4g} samples/J at {trial.watts:.1f} W"
    if not math.isnan(trial.accuracy):
        text += f", accuracy {trial.accuracy:.3f}"
    return f"{text}, {trial.num_rounds} round(s)"
