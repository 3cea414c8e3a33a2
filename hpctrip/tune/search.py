"""Which settings to try, and when to stop. Pure: whoever calls says how a setting is tried and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import compress

from hpctrip.base.stats import on_front
from hpctrip.tune.trial import Keys, Trial

Cost = Callable[[Trial], float]
_GOLDEN = (math.sqrt(5) - 1) / 2
_FEW = 3


def halving(
    candidates: Sequence[Keys],
    tried: Callable[[Keys, int], Trial],
    costs: Sequence[Cost],
    first_rounds: int,
    last_rounds: int,
) -> tuple[list[Trial], list[Trial]]:
    """Successive halving (Jamieson & Talwalkar 2016): all candidates get few rounds, those that stay twice as many.

    The better half by each of the `costs` is kept, and always the first candidate, which the others are compared with.
    Returns the trials of those that are left, with at least `last_rounds` rounds each, and the last trials of those
    that fell out.
    """
    left, rounds = list(candidates), min(first_rounds, last_rounds)
    out: list[Trial] = []
    while len(left) > _FEW and rounds < last_rounds:
        found = [tried(keys, rounds) for keys in left]
        kept = better_half(found, costs)
        out += [trial for trial in found if trial not in kept]
        if len(kept) == len(left):
            break
        left, rounds = [trial.keys for trial in kept], min(2 * rounds, last_rounds)
    final = [tried(keys, last_rounds) for keys in left]
    return [t for t in final if not t.failure], [*out, *(t for t in final if t.failure)]


def better_half(trials: Sequence[Trial], costs: Sequence[Cost]) -> list[Trial]:
    """The first trial, and a share of the others: the best by each cost in turn until half of them are kept. A cost
    that is not known of all of them does not count."""
    able = [trial for trial in trials[1:] if not trial.failure]
    known = (cost for cost in costs if not any(math.isnan(cost(trial)) for trial in able))
    orders = [sorted(able, key=cost) for cost in known]
    kept: list[Trial] = []
    for best in (trial for rank in zip(*orders, strict=True) for trial in rank):
        if len(kept) < math.ceil(len(able) / 2) and best not in kept:
            kept.append(best)
    return [trials[0], *(trial for trial in able if trial in kept)]


def golden_section(
    at: Callable[[float], Trial], cost: Cost, low: float, high: float, width: float
) -> tuple[float, float]:
    """The interval, not wider than `width`, in which a cost with one valley between `low` and `high` is lowest (Kiefer
    1953); `at` tries a value.

    Two inner values share a valley where they cost the same, so where their costs cannot be told apart it is looked
    for between them: noise ends the search early. For a convex cost the loss is then less than twice their difference
    (the slope beyond the better one is at most that between the two, and 0.382 / 0.236 = 1.6 times as long).
    """
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    while high - low > width:
        apart = cost(at(left)) - cost(at(right))
        if abs(apart) <= math.hypot(*(t.error * cost(t) for t in (at(left), at(right)))):
            low, high = left, right
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        elif apart < 0:
            high, right = right, left
            left = high - _GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + _GOLDEN * (high - low)
    return low, high


def front(trials: Iterable[Trial]) -> list[Trial]:
    """Those that no other beats in both seconds and joules, fastest first. Nothing where no joules are known."""
    ordered = sorted(trials, key=lambda t: (t.sample_s, t.sample_j))
    unbeaten = on_front(*([getattr(t, cost) for t in ordered] for cost in ("sample_s", "sample_j")))
    return list(compress(ordered, unbeaten))


def by_eta(eta: float, most_w: float) -> Cost:
    """Zeus' cost of a sample (You et al., NSDI 2023): eta * energy + (1 - eta) * most_w * time, in joules. 0: time
    alone; 1: energy alone."""
    return lambda trial: eta * trial.sample_j + (1 - eta) * most_w * trial.sample_s
