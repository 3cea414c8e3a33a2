"""Picture of a survey of readings: one row per reading, one column per claim, coloured by verdict."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing
from hpctrip.studies.claims.base import Verdict
from hpctrip.studies.claims.readings import MARKS, Survey

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
    present = [
        verdict
        for verdict in Verdict
        if any(f.ordering == verdict for row in survey.findings.values() for f in row)
    ]
    entries = [
        (Patch(facecolor=COLOURS[v], edgecolor=style.GREY), f"{v} ({MARKS[v]})" if MARKS[v] else v)
        for v in present
    ]
    style.legend_below(picture, entries)
    style.heading(picture, survey.provenance)
    return picture
