"""Checks the ordering claims of one study separately for every reading of the paper, and draws the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hpctrip.base.errors import InputError
from hpctrip.base.text import markdown_table, unknown_name
from hpctrip.figures.common import style
from hpctrip.figures.common.grouping import times_of
from hpctrip.figures.common.plot import Drawing
from hpctrip.figures.common.reading import provenance
from hpctrip.record.reader import Run
from paper.checks import takes
from paper.claim import Claim, Variants, Verdict
from paper.claims import CLAIMS
from paper.optimal import Optimal
from paper.studies import Study

LOOK = {
    Verdict.MET: (style.SKY, "+"),
    Verdict.NOT_MET: (style.VERMILLION, "-"),
    Verdict.UNDECIDED: (style.FAINT, "?"),
    Verdict.NOT_EXAMINED: ("white", ""),
}
"""{verdict: (fill colour, mark that distinguishes it without colour)}"""


def claims_of(study: str) -> list[Claim]:
    """Claims about a study, except for those about a magnitude alone. The sizes among which static optimal is looked
    for are the study's own variants "static, ...". Raises InputError if there are no claims."""
    claims = [
        replace(claim, arguments=_within(study, claim.arguments))
        for claim in CLAIMS
        if claim.study == study and claim.check is not takes
    ]
    if not claims:
        known = {claim.study for claim in CLAIMS}
        raise InputError(f"--of {study}", "no claim is about it", unknown_name(study, known))
    return claims


def _within(study: str, argument: Any) -> Any:
    """An argument of a check with the study itself as the sweep of static optimal."""
    if isinstance(argument, Optimal):
        return Optimal(study, "static")
    return (
        type(argument)(_within(study, each) for each in argument)
        if isinstance(argument, (list, tuple))
        else argument
    )


def by_reading(study: Study, axis: str) -> dict[str, dict[str, list[Run]]]:
    """The runs of a study as {reading: {variant: its finished runs}}, where the readings are the labels of an axis and
    a variant may have no finished run. Raises InputError if there is no such axis."""
    axes = [name.removeprefix("axis.") for name in study.table.columns if name.startswith("axis.")]
    if axis not in axes:
        raise InputError(f"--readings {axis}", "the study has no such axis", unknown_name(axis, axes))
    labels = {name: study.table.columns[f"axis.{name}"] for name in axes}
    readings: dict[str, dict[str, list[Run]]] = {}
    for row, reading in enumerate(labels.pop(axis)):
        variant = ", ".join(of_axis[row] for of_axis in labels.values())
        finished = readings.setdefault(reading, {}).setdefault(variant, [])
        finished += [study.finished[row]] if row in study.finished else []
    return readings


def survey(study: str, readings: Mapping[str, Variants]) -> pd.DataFrame:
    """Findings on the claims about `study` under every reading, one row for each reading and claim; attribute
    `provenance`: whether data and power of the runs are synthetic.

    For variants that a reading does not have, the runs of the base, the first reading, are used.
    """
    base = next(iter(readings.values()), {})
    findings = [
        (reading, claim, claim.finding({study: {**base, **own}}))
        for reading, own in readings.items()
        for claim in claims_of(study)
    ]
    table = pd.DataFrame(
        {
            "interpretation": reading,
            "figure": claim.figure,
            "claim": claim.says,
            "ordering": str(finding.ordering),
            "ours": finding.ours,
            "seeds": finding.num_seeds,
        }
        for reading, claim, finding in findings
    )
    all_runs = [run for own in readings.values() for runs in own.values() for run in runs]
    table.attrs["provenance"] = provenance(all_runs)
    return table


def hours(readings: Mapping[str, Variants]) -> pd.DataFrame:
    """Hours to the target of every variant that ran under a reading, one row for each."""
    return pd.DataFrame(
        {"interpretation": reading, "variant": variant}
        | times_of(runs, runs[0].meta["target_accuracy"]).row()
        for reading, own in readings.items()
        for variant, runs in own.items()
        if runs
    )


def lines_of(table: pd.DataFrame) -> list[str]:
    """Lines to print: for every claim, the readings with each verdict."""
    lines = []
    for (figure, claim), own in table.groupby(["figure", "claim"], sort=False):
        lines.append(f"{figure}: {claim}")
        for verdict in Verdict:
            where = own["interpretation"][own["ordering"] == verdict]
            share = f"{len(where)} of {len(own)}"
            lines += [f"  {verdict} with {share} interpretations: {', '.join(where)}"] if len(where) else []
    return lines


def grid(table: pd.DataFrame) -> pd.DataFrame:
    """The verdicts with one row per reading and one column per claim."""
    titles = table["figure"] + ": " + table["claim"]
    verdicts = table.assign(title=titles).pivot(index="interpretation", columns="title", values="ordering")
    return verdicts.loc[table["interpretation"].unique(), titles.unique()]


def markdown(table: pd.DataFrame) -> str:
    """Provenance of the runs, and the grid of verdicts."""
    verdicts = grid(table)
    rows = [[reading, *row] for reading, *row in verdicts.itertuples()]
    return f"{table.attrs['provenance']}\n\n{markdown_table(['interpretation', *verdicts], rows)}\n"


def draw(table: pd.DataFrame) -> Drawing:
    """Draw a survey, with its numbers and the lines to print."""
    with matplotlib.rc_context(style.LOOK):
        return Drawing(_picture(table), table, lines_of(table))


def _picture(table: pd.DataFrame) -> Figure:
    verdicts = grid(table)
    num_readings, num_claims = verdicts.shape
    picture = style.figure(1.4 + 0.2 * num_readings + 0.13 * num_claims, style.PAGE_INCHES)
    axes = picture.subplots()
    colours = ListedColormap([colour for colour, _ in LOOK.values()])
    codes = verdicts.replace({verdict: code for code, verdict in enumerate(LOOK)}).astype(int)
    axes.pcolormesh(codes, cmap=colours, vmin=0, vmax=len(LOOK) - 1, edgecolors="white", linewidth=1)
    for y, row in enumerate(verdicts.to_numpy()):
        for x, verdict in enumerate(row):
            axes.text(x + 0.5, y + 0.5, LOOK[verdict][1], ha="center", va="center")
    axes.invert_yaxis()
    axes.set_xticks([x + 0.5 for x in range(num_claims)], [str(x + 1) for x in range(num_claims)])
    axes.set_yticks([y + 0.5 for y in range(num_readings)], verdicts.index)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    letters = int(0.8 * style.PAGE_INCHES / style.LETTER_INCHES)  # the labels of the rows take the rest
    titles = [style.wrapped(f"{number}  {title}", letters, 2) for number, title in enumerate(verdicts, 1)]
    axes.set_xlabel("\n".join(titles), ha="left", x=0, fontsize=7)
    for verdict, (colour, mark) in LOOK.items():
        if (verdicts == verdict).any(axis=None):
            name = f"{verdict} ({mark})" if mark else str(verdict)
            axes.add_patch(Rectangle((0, 0), 0, 0, facecolor=colour, edgecolor=style.GREY, label=name))
    style.finish(picture, table.attrs["provenance"])
    return picture
