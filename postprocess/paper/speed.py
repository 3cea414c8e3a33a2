"""Claims about which variant is faster, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpctrip.base.stats import UNKNOWN, Estimate, compare, in_order
from hpctrip.record.reader import Run
from paper.claim import Claim, Evidence, Finding, Verdict, against, all_of, times, variant, verdict_of

ABOUT = 0.2
"""Our reading of "about equal": the interval of the ratio of two times lies within this distance of 1."""


def ratio_of(one: Sequence[Run], other: Sequence[Run]) -> Estimate:
    """Ratio of the times-to-accuracy of `one` to those of `other`, paired by seed. Raises Missing as `times` does."""
    return compare(*times(one, other))


@dataclass(frozen=True)
class Takes(Claim):
    """A variant reaches the target, in the paper after `hours`. The statement is only that it reaches the target."""

    label: str
    hours: float

    @property
    def paper(self) -> str:
        """The paper's hours."""
        return f"{self.hours:g} h"

    def check(self, evidence: Evidence) -> Finding:
        """Compare the mean over seeds."""
        (took,) = times(variant(evidence, self.study, self.label))
        reached = "" if took.reached else f"{took.num_reached} of {took.num_seeds} seeds reached the target, "
        return Finding(
            Verdict.MET if took.reached else Verdict.NOT_MET,
            f"{reached}{took.estimate.text()} h",
            against(took.estimate, self.hours),
            took.num_seeds,
        )


@dataclass(frozen=True)
class Faster(Claim):
    """A variant takes less time than another, in the paper by the fraction `share`."""

    fast: str
    slow: str
    share: float
    hours: tuple[float, float] | None = None
    """The hours of both, if the paper states them."""
    slow_study: str = ""
    """Study of the slow variant; empty: the same study."""

    @property
    def paper(self) -> str:
        """The paper's share, with the hours."""
        hours = f" ({self.hours[0]} h against {self.hours[1]} h)" if self.hours else ""
        return f"{self.share:.0%}{hours}"

    def check(self, evidence: Evidence) -> Finding:
        """Compare 1 minus the geometric mean of the ratios of hours, paired by seed."""
        fast = variant(evidence, self.study, self.fast)
        ratio = ratio_of(fast, variant(evidence, self.slow_study or self.study, self.slow))
        share = against(ratio.complement, self.share, "{:.0%}")
        return Finding(verdict_of(ratio.complement), in_words(ratio), share, ratio.n)


@dataclass(frozen=True)
class AboutEqual(Claim):
    """Two variants take about the same time: the interval of the ratio of their hours lies within `ABOUT` of 1."""

    one: str
    other: str

    @property
    def paper(self) -> str:
        """The paper's words."""
        return "about equal"

    def check(self, evidence: Evidence) -> Finding:
        """Compare the geometric mean of the ratios, paired by seed."""
        ratio = ratio_of(*(variant(evidence, self.study, label) for label in (self.one, self.other)))
        inside = [verdict_of(ratio, 1 - ABOUT), verdict_of(ratio.complement, -ABOUT)]
        return Finding(all_of(inside), f"{ratio.text()} times as long", against(ratio, 1.0), ratio.n)


@dataclass(frozen=True)
class Order(Claim):
    """Variants are listed in the order of their times: each is faster than the next."""

    labels: tuple[str, ...]

    @property
    def paper(self) -> str:
        """The paper's order."""
        return " < ".join(self.labels)

    def check(self, evidence: Evidence) -> Finding:
        """Compare every pair of neighbours over their shared seeds. `ours` orders variants by mean hours, with those
        last that reach the target with fewer of their seeds."""
        runs = {label: variant(evidence, self.study, label) for label in self.labels}
        pairs = [
            ratio_of(runs[fast], runs[slow]) for fast, slow in zip(self.labels, self.labels[1:], strict=False)
        ]
        took = {label: times(same)[0] for label, same in runs.items()}
        ours = in_order(
            (f"{label}{'' if each.reached else ' (not with every seed)'}", each)
            for label, each in took.items()
        )
        verdict = all_of([verdict_of(pair.complement) for pair in pairs])
        return Finding(verdict, ours, num_seeds=min(pair.n for pair in pairs))


@dataclass(frozen=True)
class FasterInAll(Claim):
    """A variant is the fastest of its study at every value of another axis: labels are "value, policy"."""

    fast: str
    slow: tuple[str, ...]
    values: tuple[str, ...]
    elsewhere: tuple[tuple[str, str], ...] = ()
    """(study, label) of variants without this axis, which are compared at every value."""

    def check(self, evidence: Evidence) -> Finding:
        """Compare with every other policy at every value, paired by seed."""
        lines, ratios = [], []
        all_fast = {value: variant(evidence, self.study, f"{value}, {self.fast}") for value in self.values}
        others = {label: variant(evidence, study, label) for study, label in self.elsewhere}
        for value, fast in all_fast.items():
            slow = {label: variant(evidence, self.study, f"{value}, {label}") for label in self.slow}
            to_each = {label: ratio_of(fast, runs) for label, runs in (slow | others).items()}
            texts = [f"{ratio.text()} times {label}" for label, ratio in to_each.items()]
            lines.append(f"{value}: {', '.join(texts)}")
            ratios += to_each.values()
        verdict = all_of([verdict_of(ratio.complement) for ratio in ratios])
        return Finding(verdict, "; ".join(lines), num_seeds=min(ratio.n for ratio in ratios))


@dataclass(frozen=True)
class SlowerThanIn(Claim):
    """A variant takes longer in this study than in another."""

    label: str
    other_study: str

    def check(self, evidence: Evidence) -> Finding:
        """Compare the ratio of hours, paired by seed."""
        here, there = (variant(evidence, study, self.label) for study in (self.study, self.other_study))
        ratio = ratio_of(here, there)
        return Finding(verdict_of(ratio, 1.0), f"{ratio.text()} times as long", num_seeds=ratio.n)


def in_words(ratio: Estimate) -> str:
    """A ratio of times as text, e.g. `44% less time: 0.56 (0.4 to 0.8) times as long`."""
    if ratio.bound == UNKNOWN:
        return "unknown: neither reached the target with every seed"
    saved = ratio.complement
    less = f"{saved.bound} {saved.value:.0%} less" if ratio.value <= 1 else ""
    more = f"{ratio.bound} {ratio.value - 1:.0%} more"
    return f"{less or more} time: {ratio.text()} times as long".strip()
