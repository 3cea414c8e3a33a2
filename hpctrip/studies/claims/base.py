"""The base class of the paper's claims, the runs that they are checked against, and the verdicts on them."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpctrip.base.stats import UNKNOWN, Estimate, Times, shared_seeds
from hpctrip.figures.common.grouping import times_of
from hpctrip.record.reader import Run


class Missing(Exception):
    """Raised where the runs that a claim needs do not exist or cannot be compared; the message says why."""


Variants = Mapping[str, Sequence[Run]]
"""{label: runs of one configuration, one per seed} of a study."""
Evidence = Mapping[str, Variants]
"""{study: its variants}; a study without finished runs may be absent."""


def variant(evidence: Evidence, study: str, label: str) -> Sequence[Run]:
    """The runs of one variant, one per seed. Raises Missing if there are none."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    if label not in evidence[study]:
        raise Missing(f"study {study} has no finished run of {label!r}")
    return evidence[study][label]


def target_of(runs: Sequence[Run]) -> float:
    """The target accuracy of the runs. Raises Missing if they have different targets or none."""
    targets = {float(run.meta["target_accuracy"]) for run in runs}
    if len(targets) != 1 or not min(targets) > 0:
        raise Missing(f"no common target accuracy ({', '.join(f'{t:g}' for t in sorted(targets))})")
    return targets.pop()


def times(*variants: Sequence[Run]) -> list[Times]:
    """Times-to-accuracy of several variants, restricted to the seeds that all of them have.

    Raises Missing if no seed is shared, or if the runs have no common target accuracy.
    """
    target = target_of([run for runs in variants for run in runs])
    all_times = [times_of(runs, target) for runs in variants]
    if not (seeds := shared_seeds(*all_times)):
        raise Missing("the variants have no seed in common")
    return [each.of_seeds(seeds) for each in all_times]


class Verdict(enum.StrEnum):
    """The verdict on a statement."""

    MET = "met"
    NOT_MET = "not met"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


def verdict_of(estimate: Estimate, above: float = 0.0) -> Verdict:
    """The verdict on the statement that a quantity lies above a value (see `hpctrip.base.stats`)."""
    return {True: Verdict.MET, False: Verdict.NOT_MET, None: Verdict.UNDECIDED}[estimate.lies_above(above)]


def all_of(verdicts: list[Verdict]) -> Verdict:
    """The verdict on several statements together: met where all are, not met where one is not."""
    for verdict in (Verdict.NOT_MET, Verdict.NOT_RUN, Verdict.UNDECIDED):
        if verdict in verdicts:
            return verdict
    return Verdict.MET


@dataclass(frozen=True)
class Finding:
    """The result of checking a claim against our runs."""

    ordering: Verdict
    """Whether the statement itself holds: who is faster, whether it grows."""
    ours: str
    """Our number, with its interval."""
    magnitude: str = ""
    """Our number against the paper's; empty where the paper gives none."""
    num_seeds: int = 0


@dataclass(frozen=True)
class Claim:
    """A claim of the paper. What a kind of claim is: a subclass with a `check`."""

    figure: str
    """Where the paper makes it: "Fig 9"."""
    says: str
    """What it says, in a sentence."""
    paper: str
    """The paper's number; empty where it gives none."""
    study: str
    """The study whose runs speak of it."""

    def check(self, evidence: Evidence) -> Finding:
        """What the runs say. Raises Missing where they were not made."""
        raise NotImplementedError

    def finding(self, evidence: Evidence) -> Finding:
        """What the runs say; not run where they were not made."""
        try:
            return self.check(evidence)
        except Missing as missing:
            return Finding(Verdict.NOT_RUN, str(missing))


def against(estimate: Estimate, paper: float, form: str = "{:.3g}") -> str:
    """Our number against the paper's: their ratio, and whether the paper's lies in our interval."""
    if estimate.bound == UNKNOWN:
        return ""
    if estimate.bound:
        return f"the paper's {form.format(paper)} cannot be compared with a bound"
    ratio = estimate.value / paper
    relation = f"{f'{ratio:.2f} of' if ratio >= 0 else 'contrary to'} the paper's"
    if math.isnan(estimate.low):
        return f"{relation}; one seed has no interval"
    return f"{relation}, which lies {'in' if estimate.holds(paper) else 'outside'} our interval"
