"""Search algorithms of `tune`. They are pure functions: the caller supplies how to run a trial and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import compress

import numpy as np

from hpctrip.base.errors import HpctripError
from hpctrip.base.stats import on_front
from hpctrip.tune.trial import Keys, Trial

Cost = Callable[[Trial], float]
"""Cost of a trial, to be minimised; NaN: not measured."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_FEW = 3
"""Number of candidates that are not halved any more."""
_GRID = 4
"""Number of equidistant values that are always measured, for the curve; the search goes on around the best of them."""
_WIDTH = 0.05
"""Width of the interval at which the search ends, as a fraction of the whole range."""


def successive_halving(
    candidates: Sequence[Keys],
    run_trial: Callable[[Keys, int], Trial],
    costs: Sequence[Cost],
    first_rounds: int,
    last_rounds: int,
) -> tuple[list[Trial], list[Trial]]:
    """Successive halving (Jamieson & Talwalkar 2016): all candidates get few rounds, the remaining ones twice as many.

    `run_trial(keys, num_rounds)` runs a trial. The better half by each of the `costs` remains, and always the first
    candidate, which is the baseline. Returns the trials of the remaining candidates, with at least `last_rounds` rounds
    each, and the last trial of every eliminated one.
    """
    remaining, rounds = list(candidates), min(first_rounds, last_rounds)
    eliminated: list[Trial] = []
    while len(remaining) > _FEW and rounds < last_rounds:
        trials = [run_trial(keys, rounds) for keys in remaining]
        better = better_half(trials, costs)
        eliminated += [trial for trial in trials if trial not in better]
        if len(better) == len(remaining):
            break
        remaining, rounds = [trial.keys for trial in better], min(2 * rounds, last_rounds)
    final = [run_trial(keys, last_rounds) for keys in remaining]
    return [t for t in final if not t.failure], [*eliminated, *(t for t in final if t.failure)]


def better_half(trials: Sequence[Trial], costs: Sequence[Cost]) -> list[Trial]:
    """The first trial and half of the others that did not fail: the best by each cost in turn. A cost that is NaN for
    one of them is ignored."""
    others = [trial for trial in trials[1:] if not trial.failure]
    measured = (cost for cost in costs if not any(math.isnan(cost(trial)) for trial in others))
    orders = [sorted(others, key=cost) for cost in measured]
    better: list[Trial] = []
    for best in (trial for rank in zip(*orders, strict=True) for trial in rank):
        if len(better) < math.ceil(len(others) / 2) and best not in better:
            better.append(best)
    return [trials[0], *(trial for trial in others if trial in better)]


def golden_section(
    at: Callable[[float], Trial], cost: Cost, low: float, high: float, width: float
) -> tuple[float, float]:
    """Golden-section search (Kiefer 1953): the interval, at most `width` wide, that holds the minimum of a cost that is
    unimodal between `low` and `high`. `at(value)` runs a trial.

    If the costs of the two inner points are equal, the minimum lies between them. So if they differ by no more than
    their measurement errors, the search continues between them, and noise ends it early. For a convex cost the loss is
    then less than twice their difference (the slope beyond the better one is at most that between the two, over a
    distance 0.382 / 0.236 = 1.6 times as long).
    """
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    while high - low > width:
        difference = cost(at(left)) - cost(at(right))
        if abs(difference) <= math.hypot(*(t.error * cost(t) for t in (at(left), at(right)))):
            low, high = left, right
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        elif difference < 0:
            high, right = right, left
            left = high - _GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + _GOLDEN * (high - low)
    return low, high


def search_values(
    key: str, values: np.ndarray, keys: Keys, costs: Sequence[Cost], run_trial: Callable[[Keys], Trial]
) -> list[Trial]:
    """Measure `keys` with several of the rising `values` of the setting `key`, and return all trials.

    The values are those nearest to an equidistant grid and then, for each cost, to the points of a golden-section
    search around the best one of the grid. Raises HpctripError if a trial fails.
    """
    trials: dict[float, Trial] = {}

    def at(target: float) -> Trial:
        value = values[np.abs(values - target).argmin()].item()
        if value not in trials:
            trials[value] = run_trial({**keys, key: value})
            if trials[value].failure:
                raise HpctripError(trials[value].failure)
        return trials[value]

    low, high = float(values[0]), float(values[-1])
    grid = np.linspace(low, high, _GRID)
    for cost in costs:
        best = int(np.argmin([cost(at(value)) for value in grid]))
        bracket = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
        golden_section(at, cost, *map(float, bracket), width=_WIDTH * (high - low))
    return list(trials.values())


def pareto_front(trials: Iterable[Trial]) -> list[Trial]:
    """Trials that no other beats in both seconds and joules per sample, fastest first; empty if no joules are known."""
    ordered = sorted(trials, key=lambda t: (t.sample_s, t.sample_j))
    unbeaten = on_front(*([getattr(t, cost) for t in ordered] for cost in ("sample_s", "sample_j")))
    return list(compress(ordered, unbeaten))


def zeus_cost(eta: float, max_w: float) -> Cost:
    """Zeus' cost of a sample in joules (You et al., NSDI 2023): eta * energy + (1 - eta) * max_w * time. It weighs time
    alone if eta = 0, and energy alone if eta = 1."""
    return lambda trial: eta * trial.sample_j + (1 - eta) * max_w * trial.sample_s
