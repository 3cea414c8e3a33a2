"""The ordering claims of one study, checked anew for every reading of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from hpctrip.base.text import markdown_table
from hpctrip.figures.common.reading import provenance
from hpctrip.record.reader import Run
from hpctrip.studies.claims.base import Claim, Finding, Variants, Verdict
from hpctrip.studies.claims.paper import CLAIMS
from hpctrip.studies.claims.speed import Takes

MARKS = {Verdict.MET: "+", Verdict.NOT_MET: "-", Verdict.UNDECIDED: "?", Verdict.NOT_RUN: ""}
"""One letter for each verdict."""


def claims_of(study: str) -> list[Claim]:
    """The claims that have an ordering to survive."""
    return [claim for claim in CLAIMS if claim.study == study and not isinstance(claim, Takes)]


@dataclass(frozen=True)
class Survey:
    """The claims of one study under every reading."""

    claims: Sequence[Claim]
    findings: Mapping[str, Sequence[Finding]]
    """{reading: the finding of every claim}; the base is the first."""
    provenance: str
    """Whether data and power of the runs are synthetic."""

    @classmethod
    def of(cls, study: str, readings: Mapping[str, Variants], planned: Mapping[str, Sequence[str]]) -> Survey:
        """Of the finished runs by reading and variant. `planned`: the variants of every reading; the base, the first
        reading, speaks for those that a reading does not touch."""
        claims = claims_of(study)
        base = next(iter(readings.values()), {})
        findings = {}
        for reading, own in readings.items():
            untouched = {label: runs for label, runs in base.items() if label not in planned[reading]}
            findings[reading] = [claim.finding({study: {**untouched, **own}}) for claim in claims]
        every = [run for own in readings.values() for runs in own.values() for run in runs]
        return cls(claims, findings, provenance(every))

    @property
    def lines(self) -> list[str]:
        """As it is printed: of every claim, what it survives and what not."""
        lines = []
        for number, claim in enumerate(self.claims):
            lines.append(f"{claim.figure}: {claim.says}")
            for verdict in Verdict:
                where = [
                    reading
                    for reading, findings in self.findings.items()
                    if findings[number].ordering == verdict
                ]
                if where:
                    lines.append(
                        f"  {verdict} with {len(where)} of {len(self.findings)} readings: {', '.join(where)}"
                    )
        return lines

    @property
    def markdown(self) -> str:
        """What the runs are, and a table of one row a reading and one column a claim."""
        head = ["reading", *(f"{claim.figure}: {claim.says}" for claim in self.claims)]
        rows = [[reading, *(f.ordering for f in findings)] for reading, findings in self.findings.items()]
        return f"{self.provenance}\n\n{markdown_table(head, rows)}\n"

    @property
    def table(self) -> pd.DataFrame:
        """One row a reading and claim."""
        return pd.DataFrame(
            {
                "reading": reading,
                "figure": claim.figure,
                "claim": claim.says,
                "ordering": str(finding.ordering),
                "ours": finding.ours,
                "seeds": finding.num_seeds,
            }
            for reading, findings in self.findings.items()
            for claim, finding in zip(self.claims, findings, strict=True)
        )


def by_reading(
    axis: str, choices: Sequence[tuple[Mapping[str, str], Run | None]]
) -> tuple[dict[str, dict[str, list[Run]]], dict[str, list[str]]]:
    """({reading: {variant: its finished runs}}, {reading: all its variants}) of the runs of a grid by what was chosen
    on every axis; None: not finished."""
    readings: dict[str, dict[str, list[Run]]] = {}
    planned: dict[str, list[str]] = {}
    for chosen, run in choices:
        reading = chosen[axis]
        variant = ", ".join(label for name, label in chosen.items() if name != axis)
        planned.setdefault(reading, []).append(variant)
        finished = readings.setdefault(reading, {})
        if run is not None:
            finished.setdefault(variant, []).append(run)
    return readings, planned
