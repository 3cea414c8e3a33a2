"""The figures of a study, each with its numbers as CSV."""

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
    """Draw them of the finished runs; returns what is to be printed. A figure that cannot be drawn (of too few runs, or
    of imported ones that lack what it needs) is said and left out."""
    finished = [line for line in lines if line.finished]
    if not pictures or not finished:
        return []
    from hpctrip.figures import FIGURES  # heavy

    runs = [with_study_label(ledger.runs.read(line.entry), line.entry, line.entry.label) for line in finished]
    said = []
    for picture, path in zip(pictures, paths(pictures, ledger.folder), strict=True):
        try:
            of_study = FIGURES[picture.name].source.of_study
            assert of_study is not None  # the study file was checked
            drawing = FIGURES[picture.name](of_study(runs), **picture.options)
        except (HpctripError, KeyError, ValueError) as error:
            imported = sum(line.stored.imported for line in finished)
            why = f"{imported} imported runs lack what it draws" if imported else str(error).splitlines()[0]
            said.append(f"figure {picture.name} not drawn: {why}")
            continue
        said += save(drawing, path)
    return said


def paths(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Where they are drawn: a figure that a study has twice is numbered."""
    names = [picture.name for picture in pictures]
    before = [names[:number].count(name) for number, name in enumerate(names)]
    return [
        folder / f"{name}{f'_{twice + 1}' if twice else ''}.png"
        for name, twice in zip(names, before, strict=True)
    ]


def with_study_label(run: Run, entry: Entry, label: str | None) -> Run:
    """The run with the study's name for it and the study's input: its file may have been made by another study, before
    a key was added, or where data lay elsewhere."""
    return replace(run, meta=run.meta | {"label": label or ""}, input=resolved(entry.run_input.experiment))


def save(drawing: Drawing, path: Path) -> list[str]:
    """Write a picture and, beside it, its numbers into the study's own folder; returns what is to be printed."""
    return [*drawing.lines, *drawing.save(path, overwrite=True)]
