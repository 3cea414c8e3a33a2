"""Draws the figures of a study and writes their numbers as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpctrip.base.errors import HpctripError
from hpctrip.config.inputs import resolved
from hpctrip.record.reader import Run
from hpctrip.studies.file import Picture
from hpctrip.studies.grid import Entry
from hpctrip.studies.ledger import Ledger, Line

if TYPE_CHECKING:
    from hpctrip.figures import Drawing


def draw(pictures: Sequence[Picture], ledger: Ledger, lines: Sequence[Line]) -> list[str]:
    """Draw figures of the finished runs. Returns the lines to print; a figure that cannot be drawn (too few runs, or
    imported ones without the data it needs) is left out, and a line says why."""
    finished = [line for line in lines if line.finished]
    if not pictures or not finished:
        return []
    from hpctrip.figures import FIGURES  # heavy

    runs = [with_study_label(ledger.runs.read(line.entry), line.entry, line.entry.label) for line in finished]
    report = []
    for picture, path in zip(pictures, paths(pictures, ledger.folder), strict=True):
        try:
            of_study = FIGURES[picture.name].source.of_study
            assert of_study is not None  # the study file was checked
            drawing = FIGURES[picture.name](of_study(runs), **picture.options)
        except (HpctripError, KeyError, ValueError) as error:
            imported = sum(line.stored.imported for line in finished)
            reason = (
                f"{imported} imported runs lack what it draws" if imported else str(error).splitlines()[0]
            )
            report.append(f"figure {picture.name} not drawn: {reason}")
            continue
        report += save(drawing, path)
    return report


def paths(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Paths of the pictures; a figure that a study has several times is numbered."""
    names = [picture.name for picture in pictures]
    earlier = [names[:number].count(name) for number, name in enumerate(names)]
    return [
        folder / f"{name}{f'_{count + 1}' if count else ''}.png"
        for name, count in zip(names, earlier, strict=True)
    ]


def with_study_label(run: Run, entry: Entry, label: str | None) -> Run:
    """The run with the study's label and input. Those in its file may differ: another study may have made it, before a
    key was added to hpctrip, or with data in another place."""
    return replace(run, meta=run.meta | {"label": label or ""}, input=resolved(entry.run_input.experiment))


def save(drawing: Drawing, path: Path) -> list[str]:
    """Write a picture and, beside it, its numbers, replacing earlier ones. Returns the lines to print."""
    return [*drawing.lines, *drawing.save(path, overwrite=True)]
