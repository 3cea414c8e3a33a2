"""`calibrate`: constants that a paper does not state, fitted to one of its figures. Heavy imports happen inside."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctrip.app.arguments import FILE, format_option, plugins_option
from hpctrip.base.text import printable
from hpctrip.study.commands import RESULTS, jobs_option

if TYPE_CHECKING:
    from hpctrip.study.calibrate.report import Report


@click.command()
@click.argument("path", type=FILE, metavar="[FILE.toml|NAME]", default="fig09")
@click.option(
    "--out", type=FILE, default=RESULTS, show_default=True, metavar="DIR", help="Where runs and studies lie."
)
@jobs_option
@click.option(
    "--points",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    help="Train the dynamic bars at so many points at most; 0: none.",
)
@click.option("--small", is_flag=True, help="The small form.")
@click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="One line of TOML laid over all runs."
)
@plugins_option
@format_option
def calibrate(
    path: str,
    out: str,
    jobs: int | None,
    points: int,
    small: bool,
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
    as_json: bool,
) -> None:
    """Fit constants that the paper does not state to one of its figures (default: Fig. 9).

    The target accuracy follows the paper's rule: the lowest that any cohort size can reach. What does not depend on the
    clock is trained once; hours under other constants are arithmetic. Policies whose cohorts follow the constants are
    trained at the most promising points, until no other can be better. Runs are kept as those of studies are, so the
    same command goes on after a kill. Writes points.csv, profile.csv, calibration.md, calibration.json and, as an input
    to be laid over others, NAME.toml.
    """
    from hpctrip.base.io import check_folder, json_text
    from hpctrip.base.shipped import CALIBRATIONS
    from hpctrip.study.calibrate import forms
    from hpctrip.study.calibrate.report import Report
    from hpctrip.study.calibrate.runs import Runs
    from hpctrip.study.calibrate.search import Search
    from hpctrip.study.studies import Asked, found_file

    again = f"python -m hpctrip {shlex.join(sys.argv[1:])}"
    runs = Runs.read(
        found_file(path, CALIBRATIONS, "calibration"), Asked(Path(out), overrides, plugins, small)
    )
    say = (lambda line: None) if as_json else (lambda line: click.echo(printable(line, 1000)))
    folder = Path(out) / runs.folder_name
    check_folder(folder)
    for found in Search(runs, jobs, again, say).steps(points):
        report = Report(found, again)
        _write(folder, report)
    if as_json:
        click.echo(json_text(forms.plain(report)))
        return
    for line in report.lines:
        say(line)
    say(f"written: {folder}/calibration.md, calibration.json, points.csv, profile.csv, {runs.file.name}.toml")


def _write(folder: Path, report: Report) -> None:
    from hpctrip.base.io import json_text, replace_file
    from hpctrip.record.merge import csv_bytes
    from hpctrip.study.calibrate import forms

    replace_file(folder / "points.csv", csv_bytes(forms.points(report)))
    replace_file(folder / "profile.csv", csv_bytes(forms.profile(report)))
    replace_file(folder / "calibration.md", forms.markdown(report).encode())
    replace_file(folder / "calibration.json", f"{json_text(forms.plain(report))}\n".encode())
    if overlay := forms.overlay(report):
        replace_file(folder / f"{report.found.runs.file.name}.toml", overlay.encode())
