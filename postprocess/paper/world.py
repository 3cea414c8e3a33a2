"""Claims about sites, power, networks and cohorts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.stats import Estimate
from hpctrip.base.units import MILE_M
from hpctrip.figures.common.reading import counted, with_sites
from paper.claim import Claim, Evidence, Finding, Missing, Verdict, paired, variant, verdict_of

NEAR_M = 1000 * MILE_M
"""Distance within which the paper calls bandwidth "relatively constant"."""


@dataclass(frozen=True)
class StartsSmallAndGrows(Claim):
    """The cohort of a variant is larger in the last quarter of its simulated time than in the first."""

    label: str

    def check(self, evidence: Evidence) -> Finding:
        """Compare the mean number of sites over simulated time, paired by seed."""
        growth, ends = [], []
        for run in variant(evidence, self.study, self.label):
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


@dataclass(frozen=True)
class Overhead(Claim):
    """Rounds of a fixed cohort take longer than those of a dynamic one in the first quarter of a run."""

    dynamic: str
    fixed: str

    def check(self, evidence: Evidence) -> Finding:
        """Compare mean round times over the same rounds, the first quarter of the shorter run, paired by seed."""
        runs = [variant(evidence, self.study, label) for label in (self.dynamic, self.fixed)]
        more = []
        for pair in paired(*runs):
            dynamic_s, fixed_s = (run.rounds["clock_s"].to_numpy() for run in pair)
            early = max(1, min(len(dynamic_s), len(fixed_s)) // 4)
            more.append((fixed_s[early - 1] - dynamic_s[early - 1]) / early)
        longer = Estimate.mean(more)
        return Finding(verdict_of(longer), f"{longer.text('{:+.3g}')} s a round", num_seeds=longer.n)


@dataclass(frozen=True)
class DelayIsNotLinear(Claim):
    """Delay grows faster than in proportion to distance: its slope is steeper beyond 1000 miles than within."""

    label: str

    def check(self, evidence: Evidence) -> Finding:
        """Compare least-squares slopes over the sites of one run; delays have no noise, so one run suffices."""
        sites = with_sites(variant(evidence, self.study, self.label)).sites
        if sites.empty:
            raise Missing("the runs were imported without their sites")
        near = sites["distance_m"] <= NEAR_M
        if near.sum() < 2 or (~near).sum() < 2:
            raise Missing("too few sites on one side of 1000 miles")
        slopes = [
            np.polyfit(sites["distance_m"][part] / MILE_M, sites["comm_s"][part], 1)[0] * 1000
            for part in (near, ~near)
        ]
        ours = f"{slopes[0]:.3g} s per 1000 miles inside 1000 miles, {slopes[1]:.3g} s beyond"
        return Finding(Verdict.MET if slopes[1] > slopes[0] else Verdict.NOT_MET, ours)


@dataclass(frozen=True)
class SparePower(Claim):
    """The mean spare power of every cell lies between two fractions of its capacity."""

    label: str
    low: float
    high: float

    @property
    def paper(self) -> str:
        """The paper's range."""
        return f"{self.low:.0%} to {self.high:.0%}"

    def check(self, evidence: Evidence) -> Finding:
        """Compare the mean of each cell over all domains and times (Fig 2), from the numbers of the study's figure."""
        runs = variant(evidence, self.study, self.label)
        path = runs[0].path.with_name("figures") / "power_utilisation.csv"
        if not path.exists():
            raise Missing(
                f"study {self.study} has no table {path.name}, which is drawn from its power traces"
            )
        means = 1 - read_table(path).numbers("mean")
        inside = self.low <= means.min() and means.max() <= self.high
        made_up = " (synthetic traces)" if any(run.meta["synthetic_power"] for run in runs) else ""
        span = " to ".join(f"{mean:.1%}" for mean in sorted({means.min(), means.max()}))
        ours = f"{span}, mean of {counted(len(means), 'cell')}{made_up}"
        return Finding(Verdict.MET if inside else Verdict.NOT_MET, ours)
