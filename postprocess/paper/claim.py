"""A claim of the paper, the runs that it is checked against, and the verdict on it."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpctrip.base.errors import InputError
from hpctrip.base.stats import UNKNOWN, Estimate, Times, shared_seeds
from hpctrip.figures.common.grouping import pairs, times_of
from hpctrip.figures.common.reading import common_target
from hpctrip.record.reader import Run
from paper.significance import p_value


class Missing(Exception):
    """Raised if the runs that a claim needs do not exist or cannot be compared; the message says why."""


Variants = Mapping[str, Sequence[Run]]
"""{label: runs of one configuration, one per seed} of a study."""
Evidence = Mapping[str, Variants]
"""{study: its variants}; a study without finished runs may be absent."""


def variant(evidence: Evidence, study: str, label: str) -> Sequence[Run]:
    """The runs of one variant, one per seed. Raises Missing if there are none."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    if not evidence[study].get(label):
        raise Missing(f"study {study} has no finished run of {label!r}")
    return evidence[study][label]


def times(*variants: Sequence[Run]) -> list[Times]:
    """Times-to-accuracy of several variants, restricted to the seeds that all of them have.

    Raises Missing if no seed is shared, or if the runs have no common target accuracy.
    """
    try:
        target = common_target([run for runs in variants for run in runs], None)
    except InputError as error:
        raise Missing(error.faults[0].problem) from None
    all_times = [times_of(runs, target) for runs in variants]
    if not (seeds := shared_seeds(*all_times)):
        raise Missing("the variants have no seed in common")
    return [each.of_seeds(seeds) for each in all_times]


def paired(one: Sequence[Run], other: Sequence[Run]) -> list[tuple[Run, Run]]:
    """(run of `one`, run of `other`) for each seed that both have. Raises Missing if there is none."""
    if not (both := pairs(one, other)):
        raise Missing("the two variants have no seed in common")
    return both


class Verdict(enum.StrEnum):
    """Verdict on a statement."""

    MET = "met"
    NOT_MET = "not met"
    UNDECIDED = "undecided"
    NOT_EXAMINED = "not examined"


class Judged(NamedTuple):
    """Verdict on a statement, and its two-sided p-value; NaN where it is no test over seeds."""

    verdict: Verdict
    p: float = math.nan


def above(estimate: Estimate, value: float = 0.0) -> Judged:
    """The statement that a mean lies above a value, or a ratio (value > 0) above one (see `Estimate.lies_above`)."""
    verdict = {True: Verdict.MET, False: Verdict.NOT_MET, None: Verdict.UNDECIDED}
    return Judged(verdict[estimate.lies_above(value)], p_value(estimate, value))


def below(estimate: Estimate, value: float = 1.0) -> Judged:
    """The opposite of `above`."""
    verdict, p = above(estimate, value)
    opposite = {Verdict.MET: Verdict.NOT_MET, Verdict.NOT_MET: Verdict.MET}
    return Judged(opposite.get(verdict, verdict), p)


def all_of(statements: Sequence[Judged]) -> Judged:
    """A conjunction of statements: met if all are met, and then as uncertain as the least certain; not met if one is
    not met, corrected for their number (Bonferroni)."""
    against = [p for verdict, p in statements if verdict is Verdict.NOT_MET]
    if against:
        return Judged(Verdict.NOT_MET, min(1.0, len(statements) * min(against)))
    is_met = all(verdict is Verdict.MET for verdict, _ in statements)
    return Judged(Verdict.MET if is_met else Verdict.UNDECIDED, max(p for _, p in statements))


@dataclass(frozen=True)
class Finding:
    """Result of checking a claim against runs."""

    judged: Judged
    """Verdict on the statement itself, such as which policy is faster."""
    ours: str
    """Number measured in the runs, with its interval, as text."""
    magnitude: str = ""
    """Comparison with the paper's number; empty if the paper gives none."""
    num_seeds: int = 0
    """Number of seeds that the finding is based on."""

    @property
    def ordering(self) -> Verdict:
        """The verdict without its p-value."""
        return self.judged.verdict


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    figure: str
    """Figure of the paper, e.g. "Fig 9"."""
    study: str
    """Name of the study whose runs it is checked against."""
    says: str
    """The statement, in one sentence."""
    check: Callable[..., Finding]
    """A function of `paper.checks`: `check(evidence, study, *arguments)`."""
    arguments: tuple[Any, ...] = ()
    paper: str = ""
    """The paper's number; empty if it gives none."""
    caveat: str = ""
    """Why the verdict says less than it seems to, "KIND: reason"; it is counted with those of its kind then. Empty: it
    counts."""

    def finding(self, evidence: Evidence) -> Finding:
        """Check the claim; the verdict is NOT_EXAMINED if the runs it needs do not exist."""
        try:
            return self.check(evidence, self.study, *self.arguments)
        except Missing as missing:
            return Finding(Judged(Verdict.NOT_EXAMINED), str(missing))


def against(estimate: Estimate, paper: float, form: str = "{:.3g}") -> str:
    """Comparison with the paper's number as text: the ratio, and whether the paper's number lies in the interval."""
    if estimate.bound == UNKNOWN:
        return ""
    if estimate.bound:
        return f"the paper's {form.format(paper)} cannot be compared with a bound"
    ratio = estimate.value / paper
    relation = f"{f'{ratio:.2f} of' if ratio >= 0 else 'contrary to'} the paper's"
    if math.isnan(estimate.low):
        return f"{relation}; one seed has no interval"
    place = "in" if estimate.low <= paper <= estimate.high else "outside"
    return f"{relation} ({place} our interval)"
