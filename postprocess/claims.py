"""Check the claims of the PowerTrip paper against the tables of studies; nothing is trained, no results file is opened.

    python -m hpctrip study paper --small
    python postprocess/claims.py results/studies
    python postprocess/claims.py results/studies --only "Fig 9"

The ordering (who is faster, whether it grows) and the magnitude (our number against the paper's) are judged separately.
Writes claims.md, with the studies' figures in claims/ beside it. Claims about studies that were not run are listed as
such. With --readings, the claims about one study are checked for every label of an axis, each of which is a reading of
the paper; readings.md, readings.csv (verdicts), readings_hours.csv and readings.png are then written beside the tables.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from paper import page, readings
from paper.script import run_script
from paper.studies import Study, read_studies

from hpctrip.base.io import check_folder, json_text, read_file, read_text, replace_file
from hpctrip.base.text import printable


def write_page(findings: page.Findings, studies: Sequence[Study], folder: Path, preface: str) -> list[str]:
    """Write the page of claims with its pictures. Returns the lines to print."""
    text = page.markdown(findings, studies, shlex.join(["python", *sys.argv]), preface)
    replace_file(folder / "claims.md", text.encode())
    for study in studies:
        for name, picture in study.pictures.items():
            replace_file(folder / page.PICTURES / name, read_file(picture))
    summary = page.summary(findings).replace("*", "")
    return [*page.lines_of(findings), summary, f"page: {folder / 'claims.md'}"]


def write_readings(study: Study, axis: str, of: str) -> list[str]:
    """Check the claims about the study `of` for every label of an axis. Returns the lines to print."""
    runs = readings.by_reading(study, axis)
    table = readings.survey(of, runs)
    replace_file(study.folder / "readings.md", readings.markdown(table).encode())
    replace_file(study.folder / "readings_hours.csv", readings.hours(runs).to_csv(index=False).encode())
    drawing = readings.draw(table)
    return [*drawing.lines, *drawing.save(study.folder / "readings.png", overwrite=True)]


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("folders", nargs=-1, required=True, metavar="STUDY_FOLDER...")
@click.option("--to", metavar="DIR", help="Folder of claims.md (default: that of the first study).")
@click.option(
    "--preface", metavar="FILE.md", help="Markdown text to put under the title, or an earlier page with one."
)
@click.option(
    "--only", metavar="TEXT", help="Print the claims about a figure or study, or with this text; no page."
)
@click.option(
    "--readings", "axis", metavar="AXIS", help="Check the claims for every label of this axis of one study."
)
@click.option(
    "--of",
    default="fig09",
    show_default=True,
    metavar="STUDY",
    help="With --readings: the study whose claims to check.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    folders: tuple[str, ...],
    to: str | None,
    preface: str | None,
    only: str | None,
    axis: str | None,
    of: str,
    form: str,
) -> None:
    """Check, write, and print."""
    studies = read_studies(folders)
    target = Path(to or studies[0].folder)
    check_folder(target)
    if axis is not None:
        click.echo("\n".join(line for study in studies for line in write_readings(study, axis, of)))
        return
    text = page.preface_of(read_text(preface)) if preface else ""
    findings = page.check_claims(studies)
    chosen = findings if only is None else page.matching(findings, only)
    lines = write_page(findings, studies, target, text) if only is None else page.lines_of(chosen)
    if form == "json":  # what holds among all claims, not among the chosen ones
        rows = zip(findings, page.rows_of(findings), strict=True)
        lines = [json_text([row for each, row in rows if each in chosen])]
    click.echo("\n".join(line if form == "json" else printable(line, 1000) for line in lines))


if __name__ == "__main__":
    run_script(main)
