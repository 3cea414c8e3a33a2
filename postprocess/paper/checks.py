"""Checks of the paper's claims against the runs of a study.

A check is a function of the evidence, the name of the study and arguments of its own, such as the labels of variants.
Its docstring begins with the statement that the verdict is about. It raises Missing if the runs it needs do not exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.stats import UNKNOWN, Estimate, in_order
from hpctrip.base.text import counted
from hpctrip.base.units import MILE_M
from paper.claim import (
    Evidence,
    Finding,
    Judged,
    Missing,
    Verdict,
    above,
    against,
    all_of,
    below,
    paired,
    variant,
)
from paper.optimal import Optimal, Side, best_k, best_static, label_of, ratio_of, times_by_k, took

ABOUT = 0.2
"""Our reading of "about equal", "similar", "little" and "modest": the interval of a ratio lies within this distance of
1."""
NEAR_M = 1000 * MILE_M
"""Distance within which the paper calls bandwidth "relatively constant"."""


# Which configuration is faster, and by how much


def takes(evidence: Evidence, study: str, label: str, hours: float) -> Finding:
    """A variant reaches the target with every seed; its mean time is compared with the paper's hours."""
    (time,) = took(evidence, study, label)
    reached = "" if time.reached else f"{time.num_reached} of {time.num_seeds} seeds reached the target, "
    return Finding(
        Judged(Verdict.MET if time.reached else Verdict.NOT_MET),
        f"{reached}{time.mean.text()} h",
        against(time.mean, hours),
        time.num_seeds,
    )


def faster(evidence: Evidence, study: str, fast: Side, slow: Side, share: float = math.nan) -> Finding:
    """One takes less time than another, in the paper by the fraction `share` (NaN: it gives none): 1 minus the
    geometric mean of the ratios of hours, paired by seed."""
    ratio = ratio_of(evidence, study, fast, slow)
    magnitude = "" if math.isnan(share) else against(ratio.complement, share, "{:.0%}")
    sizes = [f" ({best_static(evidence, side)[1]})" for side in (fast, slow) if isinstance(side, Optimal)]
    return Finding(below(ratio), in_words(ratio) + "".join(sizes), magnitude, ratio.n)


def about_equal(evidence: Evidence, study: str, one: Side, other: Side, paper: float = 1.0) -> Finding:
    """Two take about the same time: the interval of the ratio of their hours, `paper` in the paper, lies within `ABOUT`
    of 1."""
    ratio = ratio_of(evidence, study, one, other)
    return Finding(about_one(ratio), f"{ratio.text()} times as long", against(ratio, paper), ratio.n)


def about_one(ratio: Estimate) -> Judged:
    """The statement that a ratio lies within `ABOUT` of 1."""
    return all_of([above(ratio, 1 - ABOUT), below(ratio, 1 + ABOUT)])


def in_this_order(evidence: Evidence, study: str, sides: Sequence[Side]) -> Finding:
    """Each is faster than the next, over the seeds that both have. `ours` orders them by mean hours, with those last
    that reach the target with fewer of their seeds."""
    ratios = [ratio_of(evidence, study, fast, slow) for fast, slow in pairwise(sides)]
    each = {label_of(side): took(evidence, study, side)[0] for side in sides}
    ours = in_order(
        (f"{label}{'' if time.reached else ' (not with every seed)'}", time) for label, time in each.items()
    )
    return Finding(all_of([below(ratio) for ratio in ratios]), ours, num_seeds=min(r.n for r in ratios))


def fastest(evidence: Evidence, study: str, groups: Sequence[tuple[str, str, Sequence[Side]]]) -> Finding:
    """In every group, (its name or nothing, variant, the others), the variant is faster than each of the others, paired
    by seed."""
    lines, ratios = [], []
    for name, fast, others in groups:
        to_each = {label_of(side): ratio_of(evidence, study, fast, side) for side in others}
        texts = [
            f"{ratio.text()} times {label.removeprefix(f'{name}, ')}" for label, ratio in to_each.items()
        ]
        lines.append(f"{name}: " * bool(name) + ", ".join(texts))
        ratios += to_each.values()
    verdict = all_of([below(ratio) for ratio in ratios])
    return Finding(verdict, "; ".join(lines), num_seeds=min(ratio.n for ratio in ratios))


def slower_than_in(evidence: Evidence, study: str, pairs: Sequence[tuple[Side, Side]]) -> Finding:
    """The first of each pair takes longer than the second, paired by seed: a policy in this study and in another."""
    ratios = {label_of(here): ratio_of(evidence, study, here, there) for here, there in pairs}
    ours = ", ".join(f"{label} {ratio.text()}" for label, ratio in ratios.items())
    verdict = all_of([above(ratio, 1.0) for ratio in ratios.values()])
    return Finding(verdict, f"times as long: {ours}", num_seeds=min(ratio.n for ratio in ratios.values()))


def as_in(evidence: Evidence, study: str, pairs: Sequence[tuple[Side, Side]]) -> Finding:
    """Wherever one of two policies is significantly faster in another study, it is significantly faster in this one.
    `pairs` has each policy in this study and in the other."""
    same, lines, seeds = [], [], []
    for (one, one_there), (other, other_there) in combinations(pairs, 2):
        there = below(ratio_of(evidence, study, one_there, other_there)).verdict
        here = ratio_of(evidence, study, one, other)
        if there in (Verdict.MET, Verdict.NOT_MET):
            same.append(below(here) if there is Verdict.MET else above(here, 1.0))
            seeds.append(here.n)
            if same[-1].verdict is Verdict.NOT_MET:
                lines.append(f"{label_of(one)} {here.text()} times {label_of(other)}")
    if not same:
        raise Missing("no two policies differ significantly there")
    kept = f"{[verdict for verdict, _ in same].count(Verdict.MET)} of {len(same)} pairs as there"
    return Finding(
        all_of(same), "; ".join([kept, *(f"contrary: {line}" for line in lines)]), num_seeds=min(seeds)
    )


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
    return Finding(above(grown), f"{ours} (at most {most:.0f})", num_seeds=grown.n)


def ends_with_as_many(evidence: Evidence, study: str, label: str, optimal: Optimal, paper_k: int) -> Finding:
    """The last cohort of a variant is about as large as the best fixed one, that of static optimal's sweep."""
    best = best_k(times_by_k(evidence, optimal.sweep, optimal.value))
    last = [run.rounds["num_sites"].iloc[-1] for run in variant(evidence, study, label)]
    to_best, to_paper = (Estimate.geometric_mean(np.divide(last, k)) for k in (best, paper_k))
    ours = (
        f"{np.mean(last):.0f} sites: {to_best.text()} times the best number, {best}; {to_paper.text()} times"
    )
    return Finding(about_one(to_best), f"{ours} the paper's {paper_k}", num_seeds=to_best.n)


def slower_early_rounds(evidence: Evidence, study: str, dynamic: str, fixed: str) -> Finding:
    """Rounds of a fixed cohort take longer than those of a dynamic one: means over the same rounds, the first quarter
    of the shorter run, paired by seed."""
    more = []
    for pair in paired(*(variant(evidence, study, label) for label in (dynamic, fixed))):
        dynamic_s, fixed_s = (run.rounds["clock_s"].to_numpy() for run in pair)
        early = max(1, min(len(dynamic_s), len(fixed_s)) // 4)
        more.append((fixed_s[early - 1] - dynamic_s[early - 1]) / early)
    longer = Estimate.mean(more)
    return Finding(above(longer), f"{longer.text('{:+.3g}')} s a round", num_seeds=longer.n)


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
    return Finding(Judged(Verdict.MET if slopes[1] > slopes[0] else Verdict.NOT_MET), ours)


def spare_power(
    evidence: Evidence, study: str, label: str, within: tuple[float, float] | None, at: str = ""
) -> Finding:
    """The spare power of every cell lies within two fractions of its capacity: its mean over all domains and times
    (Fig 2), or where `at` is "max", its least, from the numbers of the study's figure. None: the paper states no
    fractions, so this is undecided."""
    runs = variant(evidence, study, label)
    path = runs[0].path.with_name("figures") / "power_utilisation.csv"
    if not path.exists():
        raise Missing(f"study {study} has no table {path.name}, which is drawn from its power traces")
    columns = ("max", "min") if within is None else (at or "mean",)
    spare = 1 - np.array([read_table(path).numbers(column) for column in columns])
    made_up = " (synthetic traces)" if any(run.meta["synthetic_power"] for run in runs) else ""
    span = " to ".join(f"{value:.1%}" for value in sorted({spare.min(), spare.max()}))
    what = {("mean",): "mean of ", ("max",): "the least in "}.get(columns, "")
    ours = f"{span}, {what}{counted(spare.shape[1], 'cell')}{made_up}"
    if within is None:
        return Finding(Judged(Verdict.UNDECIDED), ours)
    inside = within[0] <= spare.min() and spare.max() <= within[1]
    return Finding(Judged(Verdict.MET if inside else Verdict.NOT_MET), ours)
