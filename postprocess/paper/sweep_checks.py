"""Checks of claims about fixed cohorts of k sites (Figs. 6 to 8 and 11, and Eq. 9 wherever static optimal is compared).

They are functions as those of `paper.checks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from hpctrip.base.stats import UNKNOWN, Estimate, Times, compare, shared_seeds
from hpctrip.base.text import counted
from hpctrip.figures import sweeps
from hpctrip.record.reader import Run
from paper.checks import in_words
from paper.claim import (
    Evidence,
    Finding,
    Missing,
    Verdict,
    against,
    all_of,
    paired,
    times,
    variant,
    verdict_of,
)

EARLY = (10, 20)
"""Fig 11 refers to "the first 10-20 rounds": the claim has to hold for both numbers."""
LAST_ROUNDS = 10
"""Number of rounds whose mean is the final accuracy."""


def runs_by_k(evidence: Evidence, study: str, value: str = "") -> dict[int, Sequence[Run]]:
    """{k: its runs} of a study over fixed cohorts, k ascending, at this value of another axis if it has one. Raises
    Missing if there are fewer than three k."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    by_k: dict[int, Sequence[Run]] = {}
    wanted = [
        runs for label, runs in evidence[study].items() if label.startswith(f"{value}, " if value else "")
    ]
    for runs in filter(None, wanted):
        k = int(runs[0].rounds["num_sites"].iloc[0])
        if k in by_k:
            raise Missing(f"study {study} has two variants of k = {k}")
        by_k[k] = runs
    if len(by_k) < 3:
        raise Missing(f"study {study} has {len(by_k)} finished k, three are needed")
    return dict(sorted(by_k.items()))


def times_by_k(evidence: Evidence, study: str, value: str = "") -> dict[int, Times]:
    """{k: its times} over the seeds that all k have."""
    runs = runs_by_k(evidence, study, value)
    return dict(zip(runs, times(*runs.values()), strict=True))


def best_static(evidence: Evidence, sweep: str, value: str = "") -> tuple[Times, str]:
    """Static optimal (Eq. 9): (times, the sizes in words). Each seed counts with the size whose mean time over the
    other seeds is least, so that no size is chosen on the seed that it is judged on.

    A size that missed the target with two seeds cannot be the best where another size never missed it: whichever seed
    is left out, one miss remains. It needs no runs with the other seeds."""
    runs = runs_by_k(evidence, sweep, value)
    alone = {k: times(each)[0] for k, each in runs.items()}
    if any(t.reached for t in alone.values()):
        runs = {k: each for k, each in runs.items() if alone[k].num_seeds - alone[k].num_reached < 2}
    points = dict(zip(runs, times(*runs.values()), strict=True))
    seeds = next(iter(points.values())).seeds
    if len(seeds) < 2:
        raise Missing(f"study {sweep} has one seed, which cannot be left out")
    sizes, by_seed = [], []
    for seed in seeds:
        sizes.append(_best_k({k: t.of_seeds(s for s in seeds if s != seed) for k, t in points.items()}))
        judged = points[sizes[-1]].of_seeds([seed])
        by_seed.append((seed, judged.mean.value, judged.reached, judged.best_accuracy))
    counts = Counter(sizes).most_common()
    return Times.of(by_seed), ", ".join(f"k = {k} for {counted(n, 'seed')}" for k, n in counts)


def ratio_to_best_static(
    evidence: Evidence, study: str, fast: str, sweep: str, value: str = ""
) -> tuple[Estimate, str]:
    """(ratio of the times of a variant to those of static optimal, the sizes in words). `value`: label of another axis
    of the sweep; empty: it has none."""
    optimal, sizes = best_static(evidence, sweep, value)
    (took,) = times(variant(evidence, study, fast))
    if not shared_seeds(took, optimal):
        raise Missing(f"studies {study} and {sweep} have no seed in common")
    return compare(took, optimal), sizes


def faster_than_best_static(
    evidence: Evidence, study: str, fast: str, sweep: str, share: float, value: str = ""
) -> Finding:
    """A variant takes less time than static optimal (`ratio_to_best_static`), in the paper by the fraction `share`."""
    ratio, sizes = ratio_to_best_static(evidence, study, fast, sweep, value)
    magnitude = against(ratio.complement, share, "{:.0%}")
    return Finding(verdict_of(ratio.complement), f"{in_words(ratio)} ({sizes})", magnitude, ratio.n)


def best_k_moves(evidence: Evidence, study: str, others: Sequence[tuple[str, str]]) -> Finding:
    """Somewhere else the best size of this sweep takes longer than the best size there. `others`: (sweep, value of
    another axis) each; the best size has the least mean time, of those whose seeds all reached the target."""
    best, verdicts, parts = _best_k(times_by_k(evidence, study)), [], []
    for sweep, value in others:
        points = times_by_k(evidence, sweep, value)
        if best not in points:
            raise Missing(f"study {sweep} has no k = {best}")
        there = _best_k(points)
        ratio = compare(points[best], points[there])
        verdicts.append(verdict_of(ratio, 1.0))
        parts.append(
            f"k = {there} in {' at '.join(filter(None, (sweep, value)))} (k = {best}: {ratio.text()} times)"
        )
    met = Verdict.MET in verdicts
    verdict = Verdict.MET if met else Verdict.UNDECIDED
    return Finding(
        verdict, f"k = {best}; {', '.join(parts)}", num_seeds=min(t.num_seeds for t in points.values())
    )


def _best_k(points: Mapping[int, Times]) -> int:
    return min(points, key=lambda k: points[k].place)


def minimum_inside(evidence: Evidence, study: str, paper_k: int) -> Finding:
    """Time-to-accuracy has its minimum inside the range of the sweep: the best k whose seeds all reached the target
    beats both ends, paired by seed."""
    points = times_by_k(evidence, study)
    reached = {k: t for k, t in points.items() if t.reached}
    if not reached:
        raise Missing("no k reached the target with every seed")
    best = min(reached, key=lambda k: reached[k].mean.value)
    over_best = {k: verdict_of(compare(t, reached[best]), 1.0) for k, t in points.items() if k != best}
    low, high = min(points), max(points)
    verdicts = [over_best[end] for end in (low, high) if end != best]
    inner = len(verdicts) == 2
    tied = [k for k, verdict in over_best.items() if verdict is not Verdict.MET]
    may_be_inner = any(low < k < high for k in tied)
    others = f", not significantly different from {', '.join(map(str, tied))}" if tied else ""
    # if an end has the least mean, the claim is undecided if an inner k may be better, else not met
    verdict = all_of(verdicts) if inner else Verdict.UNDECIDED if may_be_inner else Verdict.NOT_MET
    place = "is among" if paper_k in (best, *tied) else "is not among"
    magnitude = f"the paper's {paper_k} {place} the k not significantly different from our best"
    return Finding(verdict, f"k = {best}{others}", magnitude, points[best].num_seeds)


def convex(evidence: Evidence, study: str) -> Finding:
    """Time-to-accuracy is convex in k: every second (divided) difference is positive. Not met if the interval of one
    lies below 0."""
    points = list(times_by_k(evidence, study).items())
    k = [at for at, _ in points[1:-1]]
    bends = [_bend(*three) for three in zip(points, points[1:], points[2:], strict=False)]
    down = [str(at) for at, bend in zip(k, bends, strict=True) if bend.value < 0]
    unknown = [str(at) for at, bend in zip(k, bends, strict=True) if bend.bound == UNKNOWN]
    parts = [f"bends down at k = {', '.join(down)}"] if down else []
    if unknown:
        parts.append(f"unknown at k = {', '.join(unknown)}, where runs did not reach the target")
    ours = "; ".join(parts) or "all means bend up"
    return Finding(all_of([verdict_of(bend) for bend in bends]), ours, num_seeds=bends[0].n)


def _bend(*points: tuple[int, Times]) -> Estimate:
    """Second divided difference of hours at three ascending k: an upper bound for seeds whose middle run did not reach
    the target, a lower bound for those whose outer runs did not."""
    k, (left, middle, right) = zip(*points, strict=True)
    slopes = np.diff([t.spent_h for t in (left, middle, right)], axis=0) / np.diff(k)[:, None]
    return Estimate.mean(slopes[1] - slopes[0], ~(left.arrived & right.arrived), ~middle.arrived)


def more_is_faster(evidence: Evidence, study: str) -> Finding:
    """The largest k reaches the target sooner than the smallest, paired by seed."""
    points = times_by_k(evidence, study)
    first, last = min(points), max(points)
    whole = compare(points[first], points[last])
    steps = [verdict_of(compare(less, more), 1.0) for less, more in pairwise(points.values())]
    apart = f"{steps.count(Verdict.MET)} of {len(steps)} steps between neighbours are significant"
    ours = f"k = {last} is {whole.text()} times as fast as k = {first}; {apart}"
    return Finding(verdict_of(whole, 1.0), ours, num_seeds=whole.n)


def diminishing(evidence: Evidence, study: str) -> Finding:
    """The speed-up over the smallest k per added site is larger in the first half of the sweep than in the second,
    paired by seed."""
    points = times_by_k(evidence, study)
    if not all(t.reached for t in points.values()):
        raise Missing("not every k reached the target with every seed")
    k = list(points)
    low, middle, high = k[0], k[len(k) // 2], k[-1]
    speed = {at: points[low].spent_h / points[at].spent_h for at in (low, middle, high)}
    early = (speed[middle] - speed[low]) / (middle - low)
    late = (speed[high] - speed[middle]) / (high - middle)
    less = Estimate.mean(early - late)
    rates = [f"{100 * per_site.mean():.2g}" for per_site in (early, late)]
    where = f"{rates[0]} per 100 sites up to k = {middle}, then {rates[1]}"
    return Finding(verdict_of(less), f"speed-up grows by {where}", num_seeds=less.n)


def higher_final(evidence: Evidence, study: str) -> Finding:
    """The largest k has a higher final accuracy than the smallest: means over the last `LAST_ROUNDS` rounds of runs
    without a target, paired by seed."""
    runs = runs_by_k(evidence, study)
    final = [
        [100 * run.rounds["accuracy"].iloc[-LAST_ROUNDS:].mean() for run in both]
        for both in paired(runs[min(runs)], runs[max(runs)])
    ]
    higher = Estimate.mean([large - small for small, large in final])
    rounds = min(len(run.rounds) for each in runs.values() for run in each)
    levels = " against ".join(f"{level:.1f} %" for level in np.mean(final, axis=0)[::-1])
    ours = f"k = {max(runs)} is {higher.text('{:+.2g}')} percentage points above k = {min(runs)} ({levels})"
    return Finding(verdict_of(higher), f"{ours} after {rounds} rounds", num_seeds=higher.n)


def higher_in_the_end(evidence: Evidence, study: str) -> Finding:
    """The largest k has a higher best accuracy than the smallest k over the number of rounds that both runs of a seed
    have. Final accuracies cannot be compared, as runs stop at the target."""
    runs = runs_by_k(evidence, study)
    points = []
    for both in paired(runs[min(runs)], runs[max(runs)]):
        length = min(len(run.rounds) for run in both)
        small, large = (run.rounds["accuracy"].iloc[:length].max() for run in both)
        points.append(100 * (large - small))
    higher = Estimate.mean(points)
    ours = f"k = {max(runs)} is {higher.text('{:+.2g}')} percentage points above k = {min(runs)}"
    return Finding(verdict_of(higher), f"{ours} after equally many rounds", num_seeds=higher.n)


def small_early_gain(evidence: Evidence, study: str, k: int) -> Finding:
    """The mean gain in accuracy over the smallest k is smaller in the first rounds than later, paired by seed."""
    runs = runs_by_k(evidence, study)
    if k not in runs:
        raise Missing(f"study {study} has no k = {k}")
    pairs = paired(runs[min(runs)], runs[k])
    gains = [sweeps.gain_over([base], [run])["gain_points"] for base, run in pairs]
    gains = [points for points in gains if points.index.max() > max(EARLY)]
    if not gains:
        raise Missing(f"no seed has more than {max(EARLY)} rounds of both k")
    verdicts, parts = [], []
    for rounds in EARLY:
        early, late = np.transpose([(g.loc[:rounds].mean(), g.loc[rounds + 1 :].mean()) for g in gains])
        verdicts.append(verdict_of(Estimate.mean(late - early)))
        parts.append(f"{early.mean():.2g} points in the first {rounds} rounds, {late.mean():.2g} later")
    return Finding(all_of(verdicts), "; ".join(parts), num_seeds=len(gains))
