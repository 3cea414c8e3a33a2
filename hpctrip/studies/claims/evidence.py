"""The runs that claims are checked against, by study and variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpctrip.base.stats import Times, shared_seeds
from hpctrip.figures.common.grouping import times_of
from hpctrip.record.reader import Run


class Missing(Exception):
    """The runs that a claim needs were not made, or cannot be compared. The text says what is missing."""


Variants = Mapping[str, Sequence[Run]]
"""{label: the seeds of one configuration} of a study."""
Evidence = Mapping[str, Variants]
"""{study: its variants}; a study that was not run is absent."""


def variant(evidence: Evidence, study: str, label: str) -> Sequence[Run]:
    """The seeds of one variant. Raises Missing."""
    if study not in evidence:
        raise Missing(f"study {study} was not run")
    if label not in evidence[study]:
        raise Missing(f"study {study} has no finished run of {label!r}")
    return evidence[study][label]


def target_of(runs: Sequence[Run]) -> float:
    """The accuracy at which the runs are measured. Raises Missing where they disagree or have none."""
    targets = {float(run.meta["target_accuracy"]) for run in runs}
    if len(targets) != 1 or not min(targets) > 0:
        raise Missing(f"no common target accuracy ({', '.join(f'{t:g}' for t in sorted(targets))})")
    return targets.pop()


def times(*variants: Sequence[Run]) -> list[Times]:
    """The times of several variants over the seeds that all of them have. Raises Missing where there is none, and as
    `target_of`."""
    target = target_of([run for runs in variants for run in runs])
    all_times = [times_of(runs, target) for runs in variants]
    if not (seeds := shared_seeds(*all_times)):
        raise Missing("the variants have no seed in common")
    return [each.of_seeds(seeds) for each in all_times]
