"""Checks of the paper's claims against the runs of a study.

A check is a function of the evidence, the name of the study and arguments of its own, such as the labels of variants.
Its docstring begins with the statement that the verdict is about. It raises Missing if the runs it needs do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.stats import UNKNOWN, Estimate, compare, in_order
from hpctrip.base.text import counted
from hpctrip.base.units import MILE_M
from hpctrip.record.reader import Run
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

ABOUT = 0.2
"""Our reading of "about equal": the interval of the ratio of two times lies within this distance of 1. Of a "modest"
increase: it lies below 1 plus that."""
NEAR_M = 1000 * MILE_M
"""Distance within which the paper calls bandwidth "relatively constant"."""


# Which variant is faster, and by how much


def ratio_of(one: Sequence[Run], other: Sequence[Run]) -> Estimate:
    """Ratio of the times-to-accuracy of `one` to those of `other`, paired by seed. Raises Missing as `times` does."""
    return compare(*times(one, other))


def takes(evidence: Evidence, study: str, label: str, hours: float) -> Finding:
    """A variant reaches the target with every seed; its mean time is compared with the paper's hours."""
    (took,) = times(variant(evidence, study, label))
    reached = "" if took.reached else f"{took.num_reached} of {took.num_seeds} seeds reached the target, "
    return Finding(
        Verdict.MET if took.reached else Verdict.NOT_MET,
        f"{reached}{took.mean.text()} h",
        against(took.mean, hours),
        took.num_seeds,
    )


def faster(
    evidence: Evidence, study: str, fast: str, slow: str, share: float, slow_study: str = ""
) -> Finding:
    """A variant takes less time than another, in the paper by the fraction `share`: 1 minus the geometric mean of the
    ratios of hours, paired by seed. `slow_study`: the study of the slow variant; empty: the same study."""
    ratio = ratio_of(variant(evidence, study, fast), variant(evidence, slow_study or study, slow))
    magnitude = against(ratio.complement, share, "{:.0%}")
    return Finding(verdict_of(ratio.complement), in_words(ratio), magnitude, ratio.n)


def about_equal(evidence: Evidence, study: str, one: str, other: str) -> Finding:
    """Two variants take about the same time: the interval of the ratio of their hours lies within `ABOUT` of 1."""
    ratio = ratio_of(*(variant(evidence, study, label) for label in (one, other)))
    inside = [verdict_of(ratio, 1 - ABOUT), verdict_of(ratio.complement, -ABOUT)]
    return Finding(all_of(inside), f"{ratio.text()} times as long", against(ratio, 1.0), ratio.n)


def in_this_order(evidence: Evidence, study: str, labels: Sequence[str]) -> Finding:
    """Each variant is faster than the next, over the seeds that both have. `ours` orders the variants by mean hours,
    with those last that reach the target with fewer of their seeds."""
    runs = {label: variant(evidence, study, label) for label in labels}
    pairs = [ratio_of(runs[fast], runs[slow]) for fast, slow in pairwise(labels)]
    took = {label: times(same)[0] for label, same in runs.items()}
    ours = in_order(
        (f"{label}{'' if each.reached else ' (not with every seed)'}", each) for label, each in took.items()
    )
    verdict = all_of([verdict_of(pair.complement) for pair in pairs])
    return Finding(verdict, ours, num_seeds=min(pair.n for pair in pairs))


def fastest(
    evidence: Evidence,
    study: str,
    fast: str,
    slow: Sequence[str],
    values: Sequence[str] = ("",),
    elsewhere: Sequence[tuple[str, str]] = (),
) -> Finding:
    """A variant is faster than each other policy, paired by seed, at every value of another axis if there is one:
    labels are then "value, policy". `elsewhere`: (study, label) of variants without this axis, which are compared at
    every value."""
    lines, ratios = [], []
    others = {label: variant(evidence, other_study, label) for other_study, label in elsewhere}
    for value in values:
        at, head = (f"{value}, ", f"{value}: ") if value else ("", "")
        to_compare = {label: variant(evidence, study, f"{at}{label}") for label in (fast, *slow)}
        runs_of_fast = to_compare.pop(fast)
        to_each = {label: ratio_of(runs_of_fast, runs) for label, runs in (to_compare | others).items()}
        texts = [f"{ratio.text()} times {label}" for label, ratio in to_each.items()]
        lines.append(head + ", ".join(texts))
        ratios += to_each.values()
    verdict = all_of([verdict_of(ratio.complement) for ratio in ratios])
    return Finding(verdict, "; ".join(lines), num_seeds=min(ratio.n for ratio in ratios))


def slower_than_in(evidence: Evidence, study: str, labels: Sequence[str], other_study: str) -> Finding:
    """Each of these variants takes longer in this study than in another, paired by seed."""
    ratios = {
        label: ratio_of(*(variant(evidence, each, label) for each in (study, other_study)))
        for label in labels
    }
    ours = ", ".join(f"{label} {ratio.text()}" for label, ratio in ratios.items())
    verdict = all_of([verdict_of(ratio, 1.0) for ratio in ratios.values()])
    return Finding(verdict, f"times as long: {ours}", num_seeds=min(ratio.n for ratio in ratios.values()))


def modestly_slower(evidence: Evidence, study: str, slow: str, fast: str, paper: float) -> Finding:
    """A variant takes longer than another by less than `ABOUT`, paired by seed; in the paper `paper` times as long."""
    ratio = ratio_of(variant(evidence, study, slow), variant(evidence, study, fast))
    verdict = verdict_of(ratio.complement, -ABOUT)
    return Finding(verdict, f"{ratio.text()} times as long", against(ratio, paper), ratio.n)


def in_words(ratio: Estimate) -> str:
    """A ratio of times as text, e.g. `44% less time: 0.56 (0.4 to 0.8) times as long`."""
    if ratio.bound == UNKNOWN:
        return "unknown: neither reached the target with every seed"
    saved = ratio.complement
    less = f"{saved.bound} {saved.value:.0%} less" if ratio.value <= 1 else ""
    more = f"{ratio.bound} {ratio.value - 1:.0%} more"
    return f"{less or more} time: {ratio.text()} times as long".strip()


# Sites, power, networks and cohorts


def starts_small_and_grows(evidence: Evidence, study: str, label: str) -> Finding:
    """The mean cohort of a variant is larger in the last quarter of its simulated time than in the first, paired by
    seed."""
    growth, ends = [], []
    for run in variant(evidence, study, label):
        clock_s, sites = run.rounds["clock_s"].to_numpy(), run.rounds["num_sites"].to_numpy(dtype=float)
        took_s = np.diff(clock_s, prepend=0.0)
        first, last = clock_s - took_s < clock_s[-1] / 4, clock_s > clock_s[-1] * 3 / 4
        early, late = (np.average(sites[part], weights=took_s[part]) for part in (first, last))
        growth.append(late - early)
        ends.append((sites[0], early, late, sites.max()))
    start, early, late, most = np.mean(ends, axis=0)
    ours = f"{start:.0f} sites in round 1, {early:.0f} over the first quarter, {late:.0f} over the last"
    grown = Estimate.mean(growth)
    return Finding(verdict_of(grown), f"{ours} (at most {most:.0f})", num_seeds=grown.n)


def slower_early_rounds(evidence: Evidence, study: str, dynamic: str, fixed: str) -> Finding:
    """Rounds of a fixed cohort take longer than those of a dynamic one: means over the same rounds, the first quarter
    of the shorter run, paired by seed."""
    more = []
    for pair in paired(*(variant(evidence, study, label) for label in (dynamic, fixed))):
        dynamic_s, fixed_s = (run.rounds["clock_s"].to_numpy() for run in pair)
        early = max(1, min(len(dynamic_s), len(fixed_s)) // 4)
        more.append((fixed_s[early - 1] - dynamic_s[early - 1]) / early)
    longer = Estimate.mean(more)
    return Finding(verdict_of(longer), f"{longer.text('{:+.3g}')} s a round", num_seeds=longer.n)


def delay_is_not_linear(evidence: Evidence, study: str, label: str) -> Finding:
    """Delay grows faster than in proportion to distance: its least-squares slope is steeper beyond 1000 miles than
    within. Delays have no noise, so the sites of one run suffice."""
    tables = [run.sites for run in variant(evidence, study, label) if not run.sites.empty]
    if not tables:
        raise Missing("the runs were imported without their sites")
    sites = tables[0]
    near = sites["distance_m"] <= NEAR_M
    if near.sum() < 2 or (~near).sum() < 2:
        raise Missing("too few sites on one side of 1000 miles")
    slopes = [
        np.polyfit(sites["distance_m"][part] / MILE_M, sites["comm_s"][part], 1)[0] * 1000
        for part in (near, ~near)
    ]
    ours = f"{slopes[0]:.3g} s per 1000 miles inside 1000 miles, {slopes[1]:.3g} s beyond"
    return Finding(Verdict.MET if slopes[1] > slopes[0] else Verdict.NOT_MET, ours)


def spare_power(evidence: Evidence, study: str, label: str, low: float, high: float) -> Finding:
    """The mean spare power of every cell lies between two fractions of its capacity: means over all domains and times
    (Fig 2), from the numbers of the study's figure."""
    runs = variant(evidence, study, label)
    path = runs[0].path.with_name("figures") / "power_utilisation.csv"
    if not path.exists():
        raise Missing(f"study {study} has no table {path.name}, which is drawn from its power traces")
    means = 1 - read_table(path).numbers("mean")
    inside = low <= means.min() and means.max() <= high
    made_up = " (synthetic traces)" if any(run.meta["synthetic_power"] for run in runs) else ""
    span = " to ".join(f"{mean:.1%}" for mean in sorted({means.min(), means.max()}))
    ours = f"{span}, mean of {counted(len(means), 'cell')}{made_up}"
    return Finding(Verdict.MET if inside else Verdict.NOT_MET, ours)
