"""Checks of claims about fixed cohorts of k sites (Figs. 6 to 8 and 11).

They are functions as those of `paper.checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hpctrip.base.stats import UNKNOWN, Estimate, Times, compare
from paper.checks import about_one, in_words
from paper.claim import Evidence, Finding, Judged, Missing, Verdict, above, all_of, below, paired, times
from paper.optimal import Optimal, best_k, runs_by_k, times_by_k, took

EARLY = (10, 20)
"""Fig 11 refers to "the first 10-20 rounds": the claim has to hold for both numbers."""
LAST_ROUNDS = 10
"""Number of rounds whose mean is the final accuracy."""


def faster_than_all(evidence: Evidence, study: str, optimal: Optimal) -> Finding:
    """Static optimal takes less time than the largest cohort of its sweep."""
    runs = runs_by_k(evidence, study)
    ratio = compare(*took(evidence, study, optimal), *times(runs[max(runs)]))
    return Finding(below(ratio), in_words(ratio), num_seeds=ratio.n)


def best_k_moves(evidence: Evidence, study: str, others: Sequence[tuple[str, str]]) -> Finding:
    """Somewhere else the best size of this sweep takes longer than the best size there. `others`: (sweep, value of
    another axis) each; the best size has the least mean time, of those whose seeds all reached the target."""
    best, moved, parts = best_k(times_by_k(evidence, study)), [], []
    for sweep, value in others:
        points = times_by_k(evidence, sweep, value)
        if best not in points:
            raise Missing(f"study {sweep} has no k = {best}")
        there = best_k(points)
        ratio = compare(points[best], points[there])
        moved.append(above(ratio, 1.0))
        parts.append(
            f"k = {there} in {' at '.join(filter(None, (sweep, value)))} (k = {best}: {ratio.text()} times)"
        )
    p = min([1.0, *(len(moved) * p for verdict, p in moved if verdict is Verdict.MET)])  # Bonferroni
    judged = Judged(Verdict.MET if p < 1 else Verdict.UNDECIDED, p)
    return Finding(
        judged, f"k = {best}; {', '.join(parts)}", num_seeds=min(t.num_seeds for t in points.values())
    )


def minimum_inside(evidence: Evidence, study: str, paper_k: int) -> Finding:
    """Time-to-accuracy has its minimum inside the range of the sweep: the best k whose seeds all reached the target
    beats both ends, paired by seed."""
    points = times_by_k(evidence, study)
    reached = {k: t for k, t in points.items() if t.reached}
    if not reached:
        raise Missing("no k reached the target with every seed")
    best = best_k(reached)
    over_best = {k: above(compare(t, reached[best]), 1.0) for k, t in points.items() if k != best}
    low, high = min(points), max(points)
    ends = [over_best[end] for end in (low, high) if end != best]
    tied = [k for k, (verdict, _) in over_best.items() if verdict is not Verdict.MET]
    others = f", not significantly different from {', '.join(map(str, tied))}" if tied else ""
    # if an end has the least mean, the claim is not met if it beats every inner k, else undecided
    judged = all_of(ends if len(ends) == 2 else [each for k, each in over_best.items() if low < k < high])
    if len(ends) == 1:
        judged = Judged(Verdict.NOT_MET if judged.verdict is Verdict.MET else Verdict.UNDECIDED, judged.p)
    place = "is among" if paper_k in (best, *tied) else "is not among"
    magnitude = f"the paper's {paper_k} {place} the k not significantly different from our best"
    return Finding(judged, f"k = {best}{others}", magnitude, points[best].num_seeds)


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
    return Finding(all_of([above(bend) for bend in bends]), ours, num_seeds=bends[0].n)


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
    steps = [above(compare(less, more), 1.0).verdict for less, more in pairwise(points.values())]
    apart = f"{steps.count(Verdict.MET)} of {len(steps)} steps between neighbours are significant"
    ours = f"k = {last} is {whole.text()} times as fast as k = {first}; {apart}"
    return Finding(above(whole, 1.0), ours, num_seeds=whole.n)


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
    return Finding(above(less), f"speed-up grows by {where}", num_seeds=less.n)


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
    return Finding(above(higher), f"{ours} after {rounds} rounds", num_seeds=higher.n)


def small_early_gain(evidence: Evidence, study: str, k: int) -> Finding:
    """In the first rounds k sites gain little over the smallest k, which is about as accurate as they: means over these
    rounds, paired by seed."""
    runs = runs_by_k(evidence, study)
    if k not in runs:
        raise Missing(f"study {study} has no k = {k}")
    both = [[run.rounds["accuracy"].to_numpy() for run in pair] for pair in paired(runs[min(runs)], runs[k])]
    both = [pair for pair in both if min(map(len, pair)) > max(EARLY)]
    if not both:
        raise Missing(f"no seed has more than {max(EARLY)} rounds of both k")
    about, parts = [], []
    for rounds in EARLY:
        few, many = np.transpose([[curve[:rounds].mean() for curve in pair] for pair in both])
        ratio = Estimate.geometric_mean(few / many)
        about.append(about_one(ratio))
        parts.append(f"{ratio.text()} over {rounds} rounds ({100 * (many - few).mean():.2g} points less)")
    behind = 100 * np.mean([pair[1][: max(EARLY)] - pair[0][: max(EARLY)] for pair in both], axis=0)
    later = np.mean([100 * np.mean(b[max(EARLY) : len(a)] - a[max(EARLY) : len(b)]) for a, b in both])
    most = f"at most {behind.max():.1f} points, in round {behind.argmax() + 1}; {later:.2g} after round {max(EARLY)}"
    return Finding(all_of(about), f"k = {min(runs)} has {', '.join(parts)}; {most}", num_seeds=len(both))


def lowest_final(evidence: Evidence, study: str, target: float) -> Finding:
    """The lowest final accuracy of any k is not above the target: means over the last `LAST_ROUNDS` rounds."""
    final = {
        k: Estimate.mean([100 * (run.rounds["accuracy"].iloc[-LAST_ROUNDS:].mean() - target) for run in runs])
        for k, runs in runs_by_k(evidence, study).items()
    }
    k = min(final, key=lambda k: final[k].value)
    ours = f"{final[k].text('{:+.2g}')} points above it, with k = {k}"
    return Finding(below(final[k], 0.0), ours, num_seeds=final[k].n)
