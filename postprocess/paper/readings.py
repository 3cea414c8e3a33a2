"""Checks the ordering claims of one study separately for every reading of the paper, and draws the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hpctrip.base.text import markdown_table
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing
from hpctrip.figures.common.reading import provenance
from hpctrip.record.reader import Run
from paper.claim import Claim, Finding, Variants, Verdict
from paper.claims import CLAIMS
from paper.speed import Takes

MARKS = {Verdict.MET: "+", Verdict.NOT_MET: "-", Verdict.UNDECIDED: "?", Verdict.NOT_RUN: ""}
"""One character per verdict."""


def claims_of(study: str) -> list[Claim]:
    """Claims about a study, except for those about a magnitude alone."""
    return [claim for claim in CLAIMS if claim.study == study and not isinstance(claim, Takes)]


@dataclass(frozen=True)
class Survey:
    """Findings about the claims of one study under every reading."""

    claims: Sequence[Claim]
    findings: Mapping[str, Sequence[Finding]]
    """{reading: one finding per claim}; the first reading is the base."""
    provenance: str
    """Whether data and power of the runs are synthetic."""

    @classmethod
    def of(cls, study: str, readings: Mapping[str, Variants]) -> Survey:
        """Check the claims about `study` against the runs by reading and variant, as from `by_reading`.

        For variants that a reading does not have, the runs of the base, the first reading, are used.
        """
        claims = claims_of(study)
        base = next(iter(readings.values()), {})
        findings = {
            reading: [claim.finding({study: {**base, **own}}) for claim in claims]
            for reading, own in readings.items()
        }
        all_runs = [run for own in readings.values() for runs in own.values() for run in runs]
        return cls(claims, findings, provenance(all_runs))

    @property
    def lines(self) -> list[str]:
        """Lines to print: for every claim, the readings with each verdict."""
        lines = []
        for number, claim in enumerate(self.claims):
            lines.append(f"{claim.figure}: {claim.says}")
            for verdict in Verdict:
                where = [name for name, of in self.findings.items() if of[number].ordering == verdict]
                share = f"{len(where)} of {len(self.findings)}"
                lines += [f"  {verdict} with {share} readings: {', '.join(where)}"] if where else []
        return lines

    @property
    def markdown(self) -> str:
        """Provenance of the runs, and a table with one row per reading and one column per claim."""
        head = ["reading", *(f"{claim.figure}: {claim.says}" for claim in self.claims)]
        rows = [[reading, *(f.ordering for f in findings)] for reading, findings in self.findings.items()]
        return f"{self.provenance}\n\n{markdown_table(head, rows)}\n"

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row per reading and claim."""
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
) -> dict[str, dict[str, list[Run]]]:
    """Group the runs of a grid as {reading: {variant: its finished runs}}. `choices` are ({axis: label}, run) of every
    run, with None for unfinished runs; a variant may have none that is finished."""
    readings: dict[str, dict[str, list[Run]]] = {}
    for labels, run in choices:
        variant = ", ".join(label for name, label in labels.items() if name != axis)
        finished = readings.setdefault(labels[axis], {}).setdefault(variant, [])
        finished += [] if run is None else [run]
    return readings


COLOURS = {
    Verdict.MET: style.SKY,
    Verdict.NOT_MET: style.VERMILLION,
    Verdict.UNDECIDED: style.FAINT,
    Verdict.NOT_RUN: "white",
}
"""Fill colour of each verdict; `MARKS` distinguish the verdicts without colour."""


def draw_survey(survey: Survey) -> Drawing:
    """Draw a survey, with its numbers and the lines to print."""
    with matplotlib.rc_context(style.LOOK):
        return Drawing(_picture(survey), survey.table, survey.lines)


def _picture(survey: Survey) -> Figure:
    readings, claims = list(survey.findings), survey.claims
    picture = style.figure(1.4 + 0.2 * len(readings) + 0.13 * len(claims), style.PAGE_INCHES)
    axes = picture.subplots()
    for y, reading in enumerate(readings):
        for x, finding in enumerate(survey.findings[reading]):
            verdict = finding.ordering
            axes.fill(
                [x - 0.5, x + 0.5, x + 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5], COLOURS[verdict]
            )
            axes.text(x, y, MARKS[verdict], ha="center", va="center")
    axes.hlines([y + 0.5 for y in range(len(readings) - 1)], -0.5, len(claims) - 0.5, "white", linewidth=1)
    axes.vlines([x + 0.5 for x in range(len(claims) - 1)], -0.5, len(readings) - 0.5, "white", linewidth=1)
    axes.set_xlim(-0.5, len(claims) - 0.5)
    axes.set_ylim(len(readings) - 0.5, -0.5)
    axes.set_xticks(range(len(claims)), [str(number + 1) for number in range(len(claims))])
    axes.set_yticks(range(len(readings)), readings)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    letters = int(style.PAGE_INCHES / style.LETTER_INCHES)
    titles = [f"{number + 1}  {claim.figure}: {claim.says}" for number, claim in enumerate(claims)]
    axes.set_xlabel("\n".join(style.wrapped(line, letters, 1) for line in titles), ha="left", x=0, fontsize=7)
    verdicts = {finding.ordering for row in survey.findings.values() for finding in row}
    entries = [
        (Patch(facecolor=COLOURS[v], edgecolor=style.GREY), f"{v} ({MARKS[v]})" if MARKS[v] else v)
        for v in Verdict
        if v in verdicts
    ]
    style.legend_below(picture, entries)
    style.heading(picture, survey.provenance)
    return picture
