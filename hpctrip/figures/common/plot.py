"""What a figure is: a function from what was read to a drawing, with its command line and the files that it leaves."""

from __future__ import annotations

import functools
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.output import check_suffix, check_writable, refuse_inputs, replace_file
from hpctrip.base.text import printable
from hpctrip.figures.common.sources import Source
from hpctrip.figures.common.style import LOOK
from hpctrip.record.results_file import ResultsFile

SUFFIXES = (".png", ".pdf", ".svg")
"""Pictures that can be written."""


@dataclass(frozen=True)
class Drawing:
    """What a figure gives."""

    picture: Figure
    table: pd.DataFrame
    """Every number in the picture, with all its digits."""
    lines: Sequence[str]
    """What is printed: the numbers for reading, and what they say."""

    def image(self, form: str = "png") -> bytes:
        """The picture as a file of this form: png, pdf or svg."""
        data = io.BytesIO()
        with matplotlib.rc_context(LOOK), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Glyph .* missing from"
            )  # a box stands for a letter of no font here
            self.picture.savefig(data, format=form)
        return _of_few_colours(data) if form == "png" else data.getvalue()

    _repr_png_ = image  # notebooks show it


def _of_few_colours(png: io.BytesIO) -> bytes:
    """The same PNG with a palette of 256 colours, which take a third of the bytes; nobody sees the difference."""
    data = io.BytesIO()
    with Image.open(png) as image:
        few = image.convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(data, "png", optimize=True, dpi=image.info["dpi"])
    return data.getvalue()


FIGURES: dict[str, Plot] = {}
"""{name: figure} of all figures, once `hpctrip.figures` is imported."""


@dataclass(frozen=True)
class Plot:
    """A figure. Called with what its source reads and its options, it gives a `Drawing`."""

    draw: Callable[..., Drawing]
    source: Source
    options: tuple[click.Option, ...]

    def __call__(self, subject: Any, **options: Any) -> Drawing:
        """Draw it. Raises InputError where it cannot be drawn of that. Every subject and every line passes here, and
        what a file says is escaped: for the picture before it is drawn, for the terminal after."""
        with matplotlib.rc_context(LOOK):
            drawing = self.draw(_legible(subject), **options)
        return replace(drawing, lines=[printable(line, 1000) for line in drawing.lines])

    @property
    def name(self) -> str:
        """The name of its module."""
        return self.draw.__module__.rpartition(".")[2]

    @functools.cached_property
    def command(self) -> click.Command:
        """Its command line."""
        doc = inspect.getdoc(sys.modules[self.draw.__module__]) or ""
        return click.Command(
            self.name,
            params=[*self.source.params, *self.options, _out(self.source.default_out or f"{self.name}.png")],
            callback=self._run,
            help=doc,
            short_help=doc.splitlines()[0],
        )

    def _run(self, out: Path | None, **given: Any) -> None:
        """Read, draw, print, and leave the picture and its numbers."""
        read = {param.name: given.pop(param.name) for param in self.source.params}
        subjects = self.source.read(**read)
        if out and len(subjects) > 1:
            problem = f"one picture cannot hold {len(subjects)} runs"
            raise InputError("--out", problem, "without it each goes beside its file")
        for subject in subjects:
            path = out or subject.out or Path(f"{self.name}.png")
            numbers = path.with_suffix(".csv")
            refuse_inputs([path, numbers], subject.files)
            drawing = self(subject.what, **given)
            for line in drawing.lines:
                click.echo(line)
            for file in (path, numbers):
                check_writable(file, overwrite=True)
            replace_file(path, drawing.image(path.suffix[1:]))
            replace_file(numbers, drawing.table.to_csv(index=False, lineterminator="\n").encode())
            click.echo(printable(f"picture: {path}", 1000))
            click.echo(printable(f"numbers: {numbers}", 1000))

    def main(self, argv: Sequence[str] | None = None) -> int:
        """It as a script: the exit code. What is wrong is one line on stderr."""
        program = f"{self.name}.py"
        try:
            self.command.main(argv, prog_name=program, standalone_mode=False)
        except HpctripError as error:
            said, code = " | ".join(str(error).splitlines()), error.exit_code
        except click.ClickException as error:
            said, code = f"{error.format_message()} (--help says more)", error.exit_code
        except click.Abort:
            return 130
        else:
            return 0
        click.echo(printable(f"{program}: {said}", 4000), err=True)
        return code


def _legible(subject: Any) -> Any:
    """Runs as they are shown; anything else as it is."""
    if isinstance(subject, list | tuple):
        return [_legible(part) for part in subject]
    return subject.legible() if isinstance(subject, ResultsFile) else subject


def figure(source: Source, *options: click.Option) -> Callable[[Callable[..., Drawing]], Plot]:
    """Make a function a figure, `draw(what the source reads, **options) -> Drawing`, called as its module is."""

    def add(draw: Callable[..., Drawing]) -> Plot:
        made = Plot(draw, source, options)
        FIGURES[made.name] = made
        return made

    return add


class _Picture(click.ParamType):
    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        check_suffix(value, SUFFIXES)
        return Path(value)


def _out(default: str) -> click.Option:
    said = f"Picture to write, {' '.join(SUFFIXES)}, with its numbers beside it in .csv (default: {default})."
    return click.Option(["--out"], type=_Picture(), metavar="FILE", help=said)


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns, the first to the left and the others to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = []
    for line in (head, *rows):
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        lines.append("  ".join((line[0].ljust(widths[0]), *rest)).rstrip())
    return lines
