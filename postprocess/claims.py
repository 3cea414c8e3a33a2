"""Check the claims of the PowerTrip paper against the tables of studies; nothing is trained, no results file is opened.

    python -m hpctrip study paper --small
    python postprocess/claims.py results/studies

Ordering (who is faster, whether it grows) is told apart from magnitude (our number against the paper's). Writes
claims.md, with the studies' figures in claims/ beside it. Claims about studies that were not run are listed as such.
With --readings, the claims about one study are checked for every label of an axis, each of which is a reading of the
paper; readings.md, readings.csv and readings.png are then written beside the tables.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from paper.claims import CLAIMS
from paper.page import PICTURES, Page, Section
from paper.readings import Survey, by_reading, claims_of, draw_survey
from paper.studies import Study, read_studies

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.io import check_folder, json_text, read_text, replace_file
from hpctrip.base.text import printable, unknown_name

CONSTANTS = (
    "timing.clock",
    "timing.seconds_per_sample",
    "network.near_bandwidth_bps",
    "network.bandwidth_law",
    "workload.data",
    "workload.train_samples",
    "partition.kind",
    "partition.alpha",
    "train.lr",
    "train.local_epochs",
    "power.path",
    "policy.gain",
    "policy.score",
    "policy.search",
    "stop.target_accuracy",
)
"""Keys that the paper does not state, or states in words only; the page shows their values."""
MOST_VALUES = 3
"""Maximum number of values of a constant within a study that the page lists one by one."""


def claims_page(studies: Sequence[Study], command: str, preface: str = "") -> Page:
    """The page of claims. `command` repeats it. Raises InputError if no claim is about any of the studies."""
    claimed = sorted({claim.study for claim in CLAIMS})
    if not {study.name for study in studies} & set(claimed):
        folders = ", ".join(str(study.folder) for study in studies)
        raise InputError(folders, "no claim is about such a study", f"name some of {', '.join(claimed)}")
    evidence = {study.name: study.variants for study in studies}
    constants = {study.name: _constants(study) for study in studies}
    shared = _shared([of_study for of_study in constants.values() if of_study])
    sections = [
        Section(
            f"{study.text('title')} (study {study.name})",
            [*_facts(study, dict(constants[study.name].items() - shared.items()))],
            study.pictures,
        )
        for study in studies
    ]
    alike = [f"in all studies: {_settings(shared)}"] if shared else []
    findings = [(claim, claim.finding(evidence)) for claim in CLAIMS]
    return Page(findings, [*alike, f"repeat this page: {command}"], sections, preface)


def _constants(study: Study) -> dict[str, str]:
    """{key: value} of the finished runs of one study; keys that no run has are absent."""
    values = {key: study.settings(key) for key in CONSTANTS}
    return {
        key: " or ".join(each) if len(each) <= MOST_VALUES else "varied"
        for key, each in values.items()
        if each
    }


def _shared(all_constants: Sequence[dict[str, str]]) -> dict[str, str]:
    """Constants with the same value in every study."""
    first = all_constants[0] if all_constants else {}
    return {key: value for key, value in first.items() if all(one.get(key) == value for one in all_constants)}


def _settings(constants: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {constants[key]}" for key in CONSTANTS if key in constants)


def _facts(study: Study, own: Mapping[str, str]) -> Iterator[str]:
    """Facts about one study; `own` are the constants that not all studies share."""
    yield f"{len(study.finished)} of {len(study.table.lines)} runs finished"
    if overlays := study.text("overlays"):
        yield f"laid over its inputs: {overlays}"
    if study.finished:
        yield "; ".join(_synthetic(study)) or "real data and power"
    if own:
        yield _settings(own)


def _synthetic(study: Study) -> Iterator[str]:
    """The synthetic inputs of a study, each with its variants unless all have it."""
    for part in ("data", "power"):
        synthetic = [
            label
            for label, runs in study.variants.items()
            if any(run.meta[f"synthetic_{part}"] for run in runs)
        ]
        if synthetic:
            some = "" if len(synthetic) == len(study.variants) else f" ({', '.join(synthetic)})"
            yield f"synthetic {part}{some}"


def check_readings(study: Study, axis: str, of: str) -> list[str]:
    """Check the claims about the study `of` for every label of an axis. Returns the lines to print."""
    axes = [name.removeprefix("axis.") for name in study.table.columns if name.startswith("axis.")]
    if axis not in axes:
        raise InputError(f"--readings {axis}", "the study has no such axis", unknown_name(axis, axes))
    if not claims_of(of):
        raise InputError(
            f"--of {of}", "no claim is about it", unknown_name(of, {claim.study for claim in CLAIMS})
        )
    labels = [study.table.columns[f"axis.{name}"] for name in axes]
    choices = [
        (dict(zip(axes, chosen, strict=True)), study.finished.get(row))
        for row, chosen in enumerate(zip(*labels, strict=True))
    ]
    survey = Survey.of(of, by_reading(axis, choices))
    replace_file(study.folder / "readings.md", survey.markdown.encode())
    drawing = draw_survey(survey)
    return [*drawing.lines, *drawing.save(study.folder / "readings.png", overwrite=True)]


def write_page(page: Page, folder: Path) -> list[str]:
    """Write the page with its pictures. Returns the lines to print."""
    replace_file(folder / "claims.md", page.markdown.encode())
    for name, png in page.pictures.items():
        replace_file(folder / PICTURES / name, png)
    return [*page.lines, f"page: {folder / 'claims.md'}"]


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("folders", nargs=-1, required=True, metavar="STUDY_FOLDER...")
@click.option("--to", metavar="DIR", help="Folder of claims.md (default: that of the first study).")
@click.option("--preface", metavar="FILE.md", help="Markdown text to put under the title.")
@click.option(
    "--readings", metavar="AXIS", help="Check the claims for every label of this axis of one study."
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
    folders: tuple[str, ...], to: str | None, preface: str | None, readings: str | None, of: str, form: str
) -> None:
    """Check, write, and print."""
    try:
        studies = read_studies(folders)
        target = Path(to or studies[0].folder)
        check_folder(target)
        if readings is not None:
            lines = [line for study in studies for line in check_readings(study, readings, of)]
        else:
            text = read_text(preface).strip() if preface else ""
            page = claims_page(studies, shlex.join(["python", *sys.argv]), text)
            lines = write_page(page, target)
            lines = [json_text(page.plain)] if form == "json" else [printable(line, 1000) for line in lines]
    except HpctripError as error:
        print(f"claims.py: {' | '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(error.exit_code)
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
