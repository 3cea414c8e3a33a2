"""What claims are checked with: the runs of studies by variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpctrip.record.reader import Run
from hpctrip.study.ratio import Missing

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
