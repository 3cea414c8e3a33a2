"""Claims about who is faster, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpctrip.study.claims.base import Claim, Finding, Verdict, against, all_of, verdict_of
from hpctrip.study.claims.evidence import Evidence, variant
from hpctrip.study.ratio import UNKNOWN, Estimate, log_ratio, times

ABOUT = 0.2
"""Two times are about equal where the interval of their ratio lies within this of 1: our reading."""


@dataclass(frozen=True)
class Takes(Claim):
    """A variant reaches the target in so many hours. A magnitude only: whether it gets there is the statement."""

    label: str
    hours: float

    def check(self, evidence: Evidence) -> Finding:
        """The mean over seeds."""
        (found,) = times(variant(evidence, self.study, self.label))
        arrived = found.reached.all()
        hours = Estimate.of(found.hours, "" if arrived else "at least")
        reached = f"{found.reached.sum()} of {hours.n} seeds reached the target, "
        return Finding(
            Verdict.MET if arrived else Verdict.NOT_MET,
            f"{'' if arrived else reached}{hours.text()} h",
            against(hours, self.hours),
            hours.n,
        )


@dataclass(frozen=True)
class Faster(Claim):
    """A variant takes less time than another: by this share, as the paper has it."""

    fast: str
    slow: str
    share: float | None = None
    slow_study: str = ""
    """Whose variant the slow one is; empty: of the same study."""

    def check(self, evidence: Evidence) -> Finding:
        """1 - the geometric mean of the ratios of their hours, seed by seed."""
        fast = variant(evidence, self.study, self.fast)
        ratio = log_ratio(*times(fast, variant(evidence, self.slow_study or self.study, self.slow)))
        saved = less_time(ratio)
        return Finding(
            verdict_of(saved),
            told(ratio),
            "" if self.share is None else against(saved, self.share, "{:.0%}"),
            saved.n,
        )


@dataclass(frozen=True)
class AboutEqual(Claim):
    """Two variants take about the same time: the interval of the ratio of their hours lies within `ABOUT` of 1."""

    one: str
    other: str

    def check(self, evidence: Evidence) -> Finding:
        """The geometric mean of the ratios, seed by seed."""
        log = log_ratio(*times(*(variant(evidence, self.study, label) for label in (self.one, self.other))))
        ratio = log.mapped(np.exp)
        inside = [verdict_of(log, np.log1p(-ABOUT)), _below(verdict_of(log, np.log1p(ABOUT)))]
        return Finding(all_of(inside), f"{ratio.text()} times as long", against(ratio, 1.0), ratio.n)


def _below(verdict: Verdict) -> Verdict:
    """The verdict of the opposite statement."""
    return {Verdict.MET: Verdict.NOT_MET, Verdict.NOT_MET: Verdict.MET}.get(verdict, verdict)


@dataclass(frozen=True)
class Order(Claim):
    """Variants in the order of their times: each is faster than the next."""

    labels: tuple[str, ...]

    def check(self, evidence: Evidence) -> Finding:
        """Every pair of neighbours, seed by seed; our order is told, by mean hours, those last that
        reach the target with fewer of the seeds."""
        runs = {label: variant(evidence, self.study, label) for label in self.labels}
        pairs = [
            verdict_of(less_time(log_ratio(*times(runs[fast], runs[slow]))))
            for fast, slow in zip(self.labels, self.labels[1:], strict=False)
        ]
        found = {label: times(same)[0] for label, same in runs.items()}
        in_order = sorted(found, key=lambda label: found[label].place)
        ours = " < ".join(
            f"{label}{'' if found[label].reached.all() else ' (not with every seed)'}" for label in in_order
        )
        return Finding(all_of(pairs), ours, num_seeds=min(map(len, runs.values())))


@dataclass(frozen=True)
class FasterInAll(Claim):
    """A variant is the fastest of its study at every value of another axis: labels are "value, policy"."""

    fast: str
    slow: tuple[str, ...]
    values: tuple[str, ...]
    elsewhere: tuple[tuple[str, str], ...] = ()
    """(study, label) of others that the axis does not touch: they are compared at every value."""

    def check(self, evidence: Evidence) -> Finding:
        """Against every other policy at every value, seed by seed."""
        said, found = [], []
        all_fast = {value: variant(evidence, self.study, f"{value}, {self.fast}") for value in self.values}
        others = {label: variant(evidence, study, label) for study, label in self.elsewhere}
        for value, fast in all_fast.items():
            slow = {label: variant(evidence, self.study, f"{value}, {label}") for label in self.slow}
            logs = {label: log_ratio(*times(fast, runs)) for label, runs in (slow | others).items()}
            ratios = [f"{log.mapped(np.exp).text()} times {label}" for label, log in logs.items()]
            said.append(f"{value}: {', '.join(ratios)}")
            found += logs.values()
        verdict = all_of([verdict_of(less_time(log)) for log in found])
        return Finding(verdict, "; ".join(said), num_seeds=min(log.n for log in found))


@dataclass(frozen=True)
class SlowerThanIn(Claim):
    """The same variant takes longer in this study than in another."""

    label: str
    other_study: str

    def check(self, evidence: Evidence) -> Finding:
        """The ratio of their hours, seed by seed."""
        here, there = (variant(evidence, study, self.label) for study in (self.study, self.other_study))
        log = log_ratio(*times(here, there))
        return Finding(verdict_of(log), f"{log.mapped(np.exp).text()} times as long", num_seeds=log.n)


def less_time(log: Estimate) -> Estimate:
    """The share of the time that the faster saves, from ln(fast / slow)."""
    return log.negated().mapped(lambda x: -np.expm1(-x))


def told(log: Estimate) -> str:
    """What ln(fast / slow) says: `44% less time: 0.56 (0.4 to 0.8) times as long`."""
    if log.bound == UNKNOWN:
        return "unknown: neither reached the target with every seed"
    saved, ratio = less_time(log), log.mapped(np.exp)
    share, more, bound = (
        (saved.value, "less", saved.bound) if log.value <= 0 else (ratio.value - 1, "more", ratio.bound)
    )
    return f"{bound} {share:.0%} {more} time: {ratio.text()} times as long".strip()
