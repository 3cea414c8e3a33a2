"""Claims about fixed cohorts of k sites: Figs 6 to 8 and 11."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.stats import UNKNOWN, Estimate, Times, compare
from hpctrip.figures import sweeps
from hpctrip.record.reader import Run
from paper.claim import Claim, Evidence, Finding, Missing, Verdict, all_of, paired, times, verdict_of


def runs_by_k(evidence: Evidence, study: str) -> dict[int, Sequence[Run]]:
    """{k: its runs} of a study over fixed cohorts, k ascending. Raises Missing if there are fewer than three k."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    by_k: dict[int, Sequence[Run]] = {}
    for runs in filter(None, evidence[study].values()):
        k = int(runs[0].rounds["num_sites"].iloc[0])
        if k in by_k:
            raise Missing(f"study {study} has two variants of k = {k}")
        by_k[k] = runs
    if len(by_k) < 3:
        raise Missing(f"study {study} has {len(by_k)} finished k, three are needed")
    return dict(sorted(by_k.items()))


def _times(evidence: Evidence, study: str) -> dict[int, Times]:
    runs = runs_by_k(evidence, study)
    return dict(zip(runs, times(*runs.values()), strict=True))


@dataclass(frozen=True)
class Minimum(Claim):
    """Time-to-accuracy has its minimum inside the range of the sweep, in the paper at `k`."""

    k: int

    @property
    def paper(self) -> str:
        """The paper's minimum."""
        return f"k = {self.k}"

    def check(self, evidence: Evidence) -> Finding:
        """Compare the best k whose seeds all reached the target with both ends of the sweep, paired by seed."""
        points = _times(evidence, self.study)
        reached = {k: t for k, t in points.items() if t.reached}
        if not reached:
            raise Missing("no k reached the target with every seed")
        best = min(reached, key=lambda k: reached[k].hours)
        over_best = {k: verdict_of(compare(t, reached[best]), 1.0) for k, t in points.items() if k != best}
        low, high = min(points), max(points)
        verdicts = [over_best[end] for end in (low, high) if end != best]
        inner = len(verdicts) == 2
        tied = [k for k, verdict in over_best.items() if verdict is not Verdict.MET]
        may_be_inner = any(low < k < high for k in tied)
        others = f", seed by seed not told apart from {', '.join(map(str, tied))}" if tied else ""
        # if an end has the least mean, the claim is undecided if an inner k may be better, else not met
        verdict = all_of(verdicts) if inner else Verdict.UNDECIDED if may_be_inner else Verdict.NOT_MET
        place = "is among" if self.k in (best, *tied) else "is not among"
        magnitude = f"the paper's {self.k} {place} the k not told from our best"
        return Finding(verdict, f"k = {best}{others}", magnitude, points[best].num_seeds)


@dataclass(frozen=True)
class Convex(Claim):
    """Time-to-accuracy is convex in k: every second (divided) difference is positive."""

    def check(self, evidence: Evidence) -> Finding:
        """Compare every second difference with 0; the claim is not met if one of their intervals lies below 0."""
        points = list(_times(evidence, self.study).items())
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


@dataclass(frozen=True)
class MoreIsFaster(Claim):
    """Each k reaches the target sooner than the next smaller one."""

    def check(self, evidence: Evidence) -> Finding:
        """Compare every pair of neighbours, paired by seed."""
        points = _times(evidence, self.study)
        pairs = zip(points, list(points)[1:], strict=False)
        speed_ups = [compare(points[less], points[more]) for less, more in pairs]
        first, last = min(points), max(points)
        whole = compare(points[first], points[last])
        ours = f"k = {last} is {whole.text()} times as fast as k = {first}"
        return Finding(all_of([verdict_of(each, 1.0) for each in speed_ups]), ours, num_seeds=whole.n)


@dataclass(frozen=True)
class Diminishing(Claim):
    """The speed-up per added site decreases: it is larger in the first half of the sweep than in the second."""

    def check(self, evidence: Evidence) -> Finding:
        """Compare the speed-up over the smallest k per added site, paired by seed."""
        points = _times(evidence, self.study)
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


@dataclass(frozen=True)
class HigherInTheEnd(Claim):
    """The largest k has a higher accuracy than the smallest k after the same number of rounds.

    Final accuracies cannot be compared, as runs stop at the target.
    """

    def check(self, evidence: Evidence) -> Finding:
        """Compare the best accuracy of every seed over the number of rounds that both runs have."""
        runs = runs_by_k(evidence, self.study)
        points = []
        for both in paired(runs[min(runs)], runs[max(runs)]):
            length = min(len(run.rounds) for run in both)
            small, large = (run.rounds["accuracy"].iloc[:length].max() for run in both)
            points.append(100 * (large - small))
        higher = Estimate.mean(points)
        ours = f"k = {max(runs)} is {higher.text('{:+.2g}')} percentage points above k = {min(runs)}"
        return Finding(verdict_of(higher), f"{ours} after as many rounds", num_seeds=higher.n)


EARLY = (10, 20)
"""Fig 11 refers to "the first 10-20 rounds": the claim has to hold for both numbers."""


@dataclass(frozen=True)
class SmallEarlyGain(Claim):
    """The gain in accuracy over the smallest k is smaller in the first rounds than later."""

    k: int

    def check(self, evidence: Evidence) -> Finding:
        """Compare mean gains in percentage points of accuracy, paired by seed."""
        runs = runs_by_k(evidence, self.study)
        if self.k not in runs:
            raise Missing(f"study {self.study} has no k = {self.k}")
        pairs = paired(runs[min(runs)], runs[self.k])
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
