"""Claims about fixed cohorts of k sites: Figs 6 to 8 and 11."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.figures import fig11_gain
from hpctrip.record.reader import Run
from hpctrip.study.claims.base import Claim, Finding, Verdict, all_of, verdict_of
from hpctrip.study.claims.evidence import Evidence
from hpctrip.study.ratio import Estimate, Missing, Times, log_ratio, times


def swept(evidence: Evidence, study: str) -> dict[int, Sequence[Run]]:
    """{k: its seeds} of a study over fixed cohorts, k ascending. Raises Missing for fewer than three k."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    found: dict[int, Sequence[Run]] = {}
    for runs in evidence[study].values():
        k = int(runs[0].rounds["num_sites"].iloc[0])
        if k in found:
            raise Missing(f"study {study} has two variants of k = {k}")
        found[k] = runs
    if len(found) < 3:
        raise Missing(f"study {study} has {len(found)} finished k, three are needed")
    return dict(sorted(found.items()))


def _times(evidence: Evidence, study: str) -> dict[int, Times]:
    runs = swept(evidence, study)
    return dict(zip(runs, times(*runs.values()), strict=True))


@dataclass(frozen=True)
class Minimum(Claim):
    """Time-to-accuracy has its minimum inside the sweep, at k of the paper."""

    k: int

    def check(self, evidence: Evidence) -> Finding:
        """The k with the least mean that all seeds reached is faster than both ends, seed by seed."""
        found = _times(evidence, self.study)
        reached = {k: t for k, t in found.items() if t.reached.all()}
        if not reached:
            raise Missing("no k reached the target with every seed")
        best = min(reached, key=lambda k: reached[k].hours.mean())
        ends = [found[end] for end in (min(found), max(found))]
        verdicts = [
            verdict_of(log_ratio(reached[best], end).negated()) for end in ends if end is not found[best]
        ]
        inner = len(verdicts) == 2
        tied = [k for k, t in found.items() if k != best and not _slower(t, reached[best])]
        said = f"k = {best}" + (
            f", seed by seed not told apart from {', '.join(map(str, tied))}" if tied else ""
        )
        # an end with the least mean speaks against the statement only as far as no inner k may be better
        verdict = all_of(verdicts) if inner else Verdict.UNDECIDED if tied else Verdict.NOT_MET
        place = "is among" if self.k in (best, *tied) else "is not among"
        return Finding(
            verdict, said, f"the paper's {self.k} {place} the k not told from our best", len(ends[0].hours)
        )


def _slower(one: Times, best: Times) -> bool:
    return verdict_of(log_ratio(one, best)) is Verdict.MET


@dataclass(frozen=True)
class Convex(Claim):
    """Time-to-accuracy is convex in k: every second (divided) difference is positive."""

    def check(self, evidence: Evidence) -> Finding:
        """Not met where the interval of one of them, over seeds, lies below 0."""
        found = {k: t for k, t in _times(evidence, self.study).items() if t.reached.all()}
        if len(found) < 3:
            raise Missing(f"{len(found)} k reached the target with every seed, three are needed")
        k = np.array(list(found), dtype=float)
        slopes = np.diff([t.hours for t in found.values()], axis=0) / np.diff(k)[:, None]
        bends = [Estimate.of(bend) for bend in np.diff(slopes, axis=0)]
        down = [int(at) for at, bend in zip(k[1:-1], bends, strict=True) if bend.value < 0]
        said = f"bends down at k = {', '.join(map(str, down))}" if down else "all means bend up"
        return Finding(all_of([verdict_of(bend) for bend in bends]), said, num_seeds=bends[0].n)


@dataclass(frozen=True)
class MoreIsFaster(Claim):
    """Each larger k reaches the target sooner than the one before."""

    def check(self, evidence: Evidence) -> Finding:
        """Every pair of neighbours, seed by seed."""
        found = _times(evidence, self.study)
        pairs = list(zip(found, list(found)[1:], strict=False))
        logs = [log_ratio(found[more], found[less]).negated() for less, more in pairs]
        first, last = min(found), max(found)
        whole = log_ratio(found[last], found[first]).negated().mapped(np.exp)
        said = f"k = {last} is {whole.text()} times as fast as k = {first}"
        return Finding(all_of([verdict_of(log) for log in logs]), said, num_seeds=logs[0].n)


@dataclass(frozen=True)
class Diminishing(Claim):
    """What a site adds to the speed-up gets less: the first half of the sweep gains more a site than the second."""

    def check(self, evidence: Evidence) -> Finding:
        """Speed-up over the smallest k, per added site, seed by seed."""
        found = _times(evidence, self.study)
        if not all(t.reached.all() for t in found.values()):
            raise Missing("not every k reached the target with every seed")
        k = list(found)
        low, middle, high = k[0], k[len(k) // 2], k[-1]
        speed = {at: found[low].hours / found[at].hours for at in (low, middle, high)}
        early = (speed[middle] - speed[low]) / (middle - low)
        late = (speed[high] - speed[middle]) / (high - middle)
        less = Estimate.of(early - late)
        said = [f"{100 * gain.mean():.2g}" for gain in (early, late)]
        where = f"{said[0]} per 100 sites up to k = {middle}, then {said[1]}"
        return Finding(verdict_of(less), f"speed-up grows by {where}", num_seeds=less.n)


@dataclass(frozen=True)
class HigherInTheEnd(Claim):
    """The largest k is at a higher accuracy than the smallest after as many rounds: runs end at the target, and cannot
    tell where they would level off."""

    def check(self, evidence: Evidence) -> Finding:
        """The best accuracy of every seed in as many rounds as both have."""
        runs = swept(evidence, self.study)
        small, large = ({run.meta["seed"]: run for run in runs[k]} for k in (min(runs), max(runs)))
        points = []
        for seed in sorted(small.keys() & large.keys()):
            both = [run.rounds["accuracy"] for run in (small[seed], large[seed])]
            length = min(map(len, both))
            points.append(100 * (both[1].iloc[:length].max() - both[0].iloc[:length].max()))
        if not points:
            raise Missing("the smallest and the largest k have no seed in common")
        higher = Estimate.of(points)
        said = f"k = {max(runs)} is {higher.text('{:+.2g}')} percentage points above k = {min(runs)}"
        return Finding(verdict_of(higher), f"{said} after as many rounds", num_seeds=higher.n)


@dataclass(frozen=True)
class SmallEarlyGain(Claim):
    """What more sites gain over the smallest k is smaller in the first rounds than in the `rounds` after them."""

    k: int
    rounds: int = 10

    def check(self, evidence: Evidence) -> Finding:
        """Mean gains in percentage points of accuracy, seed by seed."""
        runs = swept(evidence, self.study)
        if self.k not in runs:
            raise Missing(f"study {self.study} has no k = {self.k}")
        small = {run.meta["seed"]: run for run in runs[min(runs)]}
        early, late = [], []
        for run in runs[self.k]:
            if run.meta["seed"] not in small:
                continue
            gain = fig11_gain.gain([small[run.meta["seed"]]], [run])["gain_points"]
            if gain.index.max() < 2 * self.rounds:
                continue
            early.append(gain.loc[: self.rounds].mean())
            late.append(gain.loc[self.rounds + 1 : 2 * self.rounds].mean())
        if not early:
            raise Missing(f"no seed has {2 * self.rounds} rounds of both k")
        more = Estimate.of(np.subtract(late, early))
        said = (
            f"{np.mean(early):.2g} points in the first {self.rounds} rounds, {np.mean(late):.2g} in the next"
        )
        return Finding(verdict_of(more), said, num_seeds=more.n)
