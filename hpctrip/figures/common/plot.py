"""Figures as functions from their input to a drawing, with a command line each, and the files that they write."""

from __future__ import annotations

import functools
import inspect
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import hpctrip
from hpctrip.base.errors import InputError, as_in_python
from hpctrip.base.frames import pd
from hpctrip.base.io import (
    check_suffix,
    check_writable,
    digest,
    named_path,
    refuse_inputs,
    refuse_other,
    replace_file,
)
from hpctrip.base.text import printable, unknown_name
from hpctrip.figures.common import style
from hpctrip.figures.common.reading import Source
from hpctrip.record.formats import csv_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")
"""Pictures that can be written."""
_MADE_BY = re.compile(rb"hpctrip figure (\w+), numbers blake2b:([0-9a-f]{32})")
"""Metadata of every picture: the figure that it is, and the digest of the numbers beside it."""
_METADATA_KEY = {"pdf": "Keywords", "svg": "Description"}
"""The metadata field that holds it, by file format; a PNG has a text chunk of its own."""


@dataclass(frozen=True)
class Drawing:
    """A picture with its numbers."""

    picture: Figure
    table: pd.DataFrame
    """Every number in the picture, with all its digits."""
    lines: Sequence[str]
    """Text to print: the numbers, rounded for reading, and conclusions from them."""
    figure: str = "unnamed"
    """The name of the figure that it is."""

    def image(self, form: str = "png") -> bytes:
        """The picture as a file of this form: png, pdf or svg."""
        made_by = f"hpctrip figure {self.figure}, numbers blake2b:{digest(csv_bytes(self.table))}"
        data = io.BytesIO()
        metadata = {_METADATA_KEY[form]: made_by} if form in _METADATA_KEY else None
        self.picture.savefig(data, format=form, metadata=metadata)
        return _with_palette(data, made_by) if form == "png" else data.getvalue()

    _repr_png_ = image  # notebooks show it

    def save(self, path: str | Path, overwrite: bool = False) -> list[str]:
        """Write the picture and, beside it, its numbers; returns what is to be printed. An earlier picture of this
        figure is replaced, and so are its numbers. Anything else raises InputError, unless it is to `overwrite`."""
        with as_in_python():
            return self.write(path, overwrite)

    def write(self, path: str | Path, overwrite: bool) -> list[str]:
        """As `save`, for a command line: errors name its options."""
        path, table = Path(path), csv_bytes(self.table)
        numbers = path.with_suffix(".csv")
        if not overwrite:
            self._refuse_others(path, numbers, table)
        for file in (path, numbers):
            check_writable(file, overwrite=True)
        replace_file(path, self.image(path.suffix[1:]))
        replace_file(numbers, table)
        return [f"picture: {path}", f"numbers: {numbers}"]

    def _refuse_others(self, path: Path, numbers: Path, table: bytes) -> None:
        ours = {digest(table)}

        def is_of_this_figure(picture: bytes) -> bool:
            made = _MADE_BY.search(picture)
            ours.update([made[2].decode()] if made else [])
            return made is not None and made[1].decode() == self.figure

        hint = "choose another file by --out, or --overwrite"
        refuse_other(path, is_of_this_figure, f"not a picture of the figure {self.figure}", hint)
        what = f"not the table that belongs to {path}"
        refuse_other(numbers, lambda text: digest(text) in ours, what, hint)


def _with_palette(png: io.BytesIO, made_by: str) -> bytes:
    """The same PNG with a palette of 256 colours, which takes a third of the bytes and looks the same, and with a text
    chunk."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    data, texts = io.BytesIO(), PngInfo()
    texts.add_text("Source", made_by)
    texts.add_text("Software", f"hpctrip {hpctrip.__version__}")
    with Image.open(png) as image:
        few = image.convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(data, "png", optimize=True, dpi=image.info["dpi"], pnginfo=texts)
    return data.getvalue()


SIZES = (
    click.Option(["--width"], type=click.FloatRange(1, 40), metavar="INCHES", help="Width of the picture."),
    click.Option(
        ["--font-size"], type=click.FloatRange(4, 40), metavar="POINTS", help="Size of its text (default: 8)."
    ),
)
"""Options of every figure."""
FIGURES: dict[str, Plot] = {}
"""{name: figure} of all figures, once `hpctrip.figures` is imported."""


@dataclass(frozen=True)
class Plot:
    """A figure. Called with what its source reads and its options, it gives a `Drawing`."""

    draw: Callable[..., Drawing]
    source: Source
    options: tuple[click.Option, ...]
    name: str
    help: str
    """Its title in one line, then details."""

    def __call__(
        self, subject: Any, width: float | None = None, font_size: float | None = None, **options: Any
    ) -> Drawing:
        """Draw it, with lines that a terminal can print, in a `width` of these inches (None: its own) and with text of
        `font_size` points (None: 8). Raises InputError where it cannot be drawn of that."""
        with style.sized(width, font_size or style.POINTS):
            drawing = self.draw(subject, **options)
            style.enlarge(drawing.picture)
        lines = [printable(line, 1000) for line in drawing.lines]
        return replace(drawing, figure=self.name, lines=lines)

    def converted(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its options, named with _ for -, as its command converts them from texts. Raises InputError for one that it
        does not have, and for a wrong value."""
        known = {option.name or "": option for option in (*self.options, *SIZES)}
        for name in options:
            if name not in known:
                raise InputError(self.name, f"has no option {name!r}", unknown_name(name, known))
        return {name: _converted(known[name], value) for name, value in options.items()}

    @functools.cached_property
    def command(self) -> click.Command:
        """Its command line."""
        default = self.source.default_out or f"plot_{self.name}.png"
        out = f"Picture to write, {' '.join(SUFFIXES)}, with its numbers beside it in .csv (default: {default})."
        overwrite = "Replace files that are there; an earlier picture of this figure and its numbers are, in any case."
        params = [
            *(*self.source.params, *self.options, *SIZES),
            click.Option(["--out"], type=_picture, metavar="FILE", help=out),
            click.Option(["--overwrite"], is_flag=True, help=overwrite),
        ]
        title = self.help.splitlines()[0]
        return click.Command(self.name, params=params, callback=self._run, help=self.help, short_help=title)

    def _run(self, out: Path | None, overwrite: bool, **arguments: Any) -> None:
        """Read, draw, print, and leave the picture and its numbers."""
        read = {param.name: arguments.pop(param.name) for param in self.source.params}
        subjects = self.source.read(**read)
        if out and len(subjects) > 1:
            problem = f"one picture cannot hold {len(subjects)} runs"
            raise InputError("--out", problem, "without it each goes beside its file")
        for subject in subjects:
            path = out or subject.out or Path(f"plot_{self.name}.png")  # sites.csv may be an input of the run
            refuse_inputs([path, path.with_suffix(".csv")], subject.files)
            drawing = self(subject.what, **arguments)
            for line in drawing.lines:
                click.echo(line)
            for line in drawing.write(path, overwrite):
                click.echo(printable(line, 1000))


def _converted(option: click.Option, value: Any) -> Any:
    """The value of an option, converted as from a command line; None: its default. Raises InputError."""
    try:
        if option.multiple or option.nargs != 1:
            parts = value if isinstance(value, list | tuple) else [value]
            return tuple(option.type.convert(str(part), None, None) for part in parts)
        return value if value is None else option.type.convert(str(value), None, None)
    except click.BadParameter as error:
        raise InputError(option.name or "", error.message) from None


def _picture(name: str) -> Path:
    """The path of a picture. Raises InputError where its suffix is that of no picture."""
    path = named_path(name, f"--out {name}")
    check_suffix(name, SUFFIXES)
    return path


def figure(source: Source, *options: click.Option) -> Callable[[Callable[..., Drawing]], Plot]:
    """Make a function a figure, `draw(what the source reads, **options) -> Drawing`. Its name is that of the function,
    its help the docstring; of a function called `plot`, those of its module."""

    def add(draw: Callable[..., Drawing]) -> Plot:
        described = sys.modules[draw.__module__] if draw.__name__ == "plot" else draw
        name = described.__name__.rpartition(".")[2]
        FIGURES[name] = Plot(draw, source, options, name, inspect.getdoc(described) or name)
        return FIGURES[name]

    return add
