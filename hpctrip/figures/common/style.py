"""The look of pictures: colours for every kind of colour vision, figures of a column's width, legends."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctrip.base.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLUMN_INCHES = 3.35
"""Width of one column of a two-column paper."""
PAGE_INCHES = 7.2
"""Width of both."""

LETTER_INCHES = 0.055
"""Width of a letter of 7 points."""
FEW = 3
"""The interval of so few seeds, or fewer, is wider than they are apart: the picture shows them instead."""
MEAN = -0.2
"""Place of a mean in a row or column of height 1 around 0, beside its single seeds."""
FEW_LINES = 3
"""For longer legends a figure grows, so that they take nothing from the data."""

# Okabe and Ito's palette, which is distinct with every common colour blindness. Grey comes with lines or hatches.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PINK, GREY = "#56B4E9", "#CC79A7", "#8A8A8A"
CYCLE = (
    BLUE,
    VERMILLION,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    "#000000",
    "#332288",
    "#999933",
    "#882255",
    "#44AA99",
    "#DDCC77",
)
"""Colours of lines and points; those after the seventh are of Paul Tol's palette `muted`."""
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))
MOST_LINES = len(LINES)
"""Largest number of distinct lines."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
"""Marks of points, distinct without colours."""
PHASES = {
    "train": (BLUE, ""),
    "exchange": (ORANGE, "////"),
    "evaluate": (SKY, "...."),
    "record": (VERMILLION, "xxxx"),
}
"""{phase of a round's wall time: (colour, hatch) of its bar}, from the first to the last."""
QUIET, FAINT = "#555555", "#D4D4D4"
"""Colours of text beside the data, and of marks that are there to compare with only."""
HATCHED = {"facecolor": "white", "edgecolor": FAINT, "hatch": "////"}
"""The look of a bar whose end is unknown."""
LOOK = {
    "font.size": 8,
    "axes.titlesize": 7,
    "axes.titlelocation": "left",
    "axes.titlecolor": QUIET,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": f"cycler(color={CYCLE})",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 300,
    "text.parse_math": False,  # labels are the user's: a $ is a $
    "text.usetex": False,
    "pdf.fonttype": 42,  # text stays text in a PDF
    "svg.fonttype": "none",
}
"""matplotlib's settings while a figure is drawn and saved; they are restored afterwards."""


POINTS = LOOK["font.size"]
"""Size of text."""
_size: ContextVar[tuple[float | None, float]] = ContextVar("_size", default=(None, 1.0))
"""(width in inches, or None for a figure's own; size of text, relative to POINTS) of the figures drawn now."""


@contextmanager
def sized(width_inches: float | None = None, points: float = POINTS) -> Iterator[None]:
    """Draw the figures of the body in this look, in this width (None: their own) and with text of this size."""
    import matplotlib

    token = _size.set((width_inches, points / POINTS))
    try:
        with matplotlib.rc_context(LOOK):
            yield
    finally:
        _size.reset(token)


def figure(height_inches: float, width_inches: float = COLUMN_INCHES) -> Figure:
    """An empty figure of a column's width whose parts never overlap, and which is saved as it is drawn."""
    import matplotlib
    from matplotlib.figure import Figure

    width, scale = _size.get()
    picture = Figure(figsize=((width or width_inches) / scale, height_inches), layout="constrained")
    saved = picture.savefig

    def savefig(*args: Any, **options: Any) -> None:
        with matplotlib.rc_context(LOOK), warnings.catch_warnings():
            # a box stands for a letter of no font here
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            saved(*args, **options)

    picture.savefig = savefig  # type: ignore[method-assign]
    return picture


def enlarge(picture: Figure) -> None:
    """Give a finished figure the size for which `figure` left room: all text, and the whole with it."""
    from matplotlib.text import Text

    _, scale = _size.get()
    if scale == 1:
        return
    picture.set_size_inches(picture.get_size_inches() * scale)
    for text in picture.findobj(Text):
        text.set_fontsize(text.get_fontsize() * scale)
    for axes in picture.axes:
        axes.tick_params(which="both", labelsize=LOOK["xtick.labelsize"] * scale)  # also of ticks to come


def line(i: int) -> dict[str, Any]:
    """The look of the i-th line: its colour, and dashes that distinguish it without colours."""
    return {"color": CYCLE[i % len(CYCLE)], "linestyle": LINES[i % len(LINES)]}


def point(i: int) -> dict[str, Any]:
    """The look of the i-th kind of point: no colour and no mark comes again among as many as there are of them."""
    turn = i // len(CYCLE)
    return {"color": CYCLE[i % len(CYCLE)], "marker": MARKS[(i + turn) % len(MARKS)]}


def sizes_to_draw(sizes: Sequence[int]) -> list[int]:
    """Cohort sizes to draw, of a rising sequence: all, or the largest and those nearest to half, a quarter, ... of
    it where there are more than MOST_LINES."""
    if len(sizes) <= MOST_LINES:
        return list(sizes)
    wanted = [sizes[-1] / 2**i for i in range(MOST_LINES) if sizes[-1] / 2**i >= sizes[0]]
    return sorted({min(sizes, key=lambda k: abs(k - size)) for size in wanted})


def one_seed(arrived: bool, beyond: str = ">") -> dict[str, Any]:
    """The look of one seed's time, with its label in the legend: a dot, or an open arrow head, that way, where the
    target was not reached."""
    look = {"linestyle": "none", "color": "black", "markeredgewidth": 0.6, "zorder": 4}
    if arrived:
        return look | {"marker": "o", "markersize": 2.2, "label": "one seed"}
    missed = {"marker": beyond, "markersize": 3.5, "markerfacecolor": "white"}
    return look | missed | {"label": "one seed, not reached"}


def has_whiskers(n: int) -> bool:
    """Whether the interval of a mean of n is drawn: at most FEW are drawn as the points that they are."""
    return n > FEW


def beside_mean(n: int) -> np.ndarray:
    """[n] places of single seeds in a row or column of height 1 around 0, apart from MEAN, the place of their mean."""
    return np.linspace(0.0, 0.28, n) if n > 1 else np.full(n, 0.1)


def say_empty(axes: Axes, why: str, y: float | None = None) -> None:
    """Write the reason into an empty panel, or into its empty row at `y`."""
    place, among = ((0.5, 0.5), "axes fraction") if y is None else ((0.5, y), ("axes fraction", "data"))
    box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    look = {"ha": "center", "va": "center", "fontsize": 7, "color": QUIET, "bbox": box}
    axes.annotate(wrapped(why, 28), place, xycoords=among, **look)


def mark_point(line: Line2D) -> None:
    """Give a line of a single point, which would be invisible, a marker."""
    if len(np.atleast_1d(line.get_xdata())) == 1:
        line.set(marker="o", markersize=3, clip_on=False)


def every_nth(number: int, most: int = 8) -> slice:
    """The slice that picks at most `most` of `number` labels, evenly spaced."""
    return slice(None, None, max(1, -(-number // most)))


def band(axes: Axes, x: Any, low: Any, high: Any, look: dict[str, Any]) -> None:
    """The interval around a line of this look."""
    axes.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def mean_bar(axes: Axes, y: float, mean: Estimate) -> None:
    """A mean with its interval, where they are finite, above the dots of a row."""
    if np.isfinite(mean.value):
        axes.plot([mean.value] * 2, [y + MEAN - 0.13, y + MEAN + 0.13], color=BLUE, linewidth=2, label="mean")
    if np.isfinite(mean.low) and has_whiskers(mean.n):
        look = {"fmt": "none", "color": BLUE, "capsize": 3, "elinewidth": 1.2}
        axes.errorbar(mean.value, y + MEAN, xerr=mean.bars, label="its 95 % interval", **look)


def wrapped(name: str, letters: int, lines: int = 4) -> str:
    """A name in lines of so many letters, a number beside its unit; what does not fit ends in an ellipsis."""
    unbroken = re.sub(r"(?<=\d) (?=[\w%])|(?<= =) (?=\d)| (?== )", "\xa0", name)
    parts = textwrap.wrap(unbroken, max(letters, 2), max_lines=lines, placeholder="…")
    return "\n".join(parts).replace("\xa0", " ")


def counted_name(name: str, n: int, letters: int) -> str:
    """A name and its number of seeds, which is never cut off nor apart."""
    count = f"(n = {n})"
    lines = wrapped(name, letters, 3).splitlines() or [""]
    if len(lines[-1]) + 1 + len(count) > letters:
        return "\n".join([*lines, count])
    return "\n".join([*lines[:-1], f"{lines[-1]} {count}".strip()])


def counts(numbers: Sequence[int], noun: str = "seed") -> str:
    """n = 3 seeds, or n = 2 to 3 seeds."""
    least, most = min(numbers), max(numbers)
    return f"n = {least if least == most else f'{least} to {most}'} {noun}{'' if most == 1 else 's'}"


def finish(figure: Figure, heading: str, ncols: int = 0) -> None:
    """Write a description of the data above the whole figure, small, in as many lines as it takes, and below it a
    legend of all that has a label in any panel, every label once; `ncols`: its columns (0: as many as fit)."""
    letters = int(figure.get_figwidth() / LETTER_INCHES)
    lines = "\n".join(wrapped(line, letters) for line in heading.splitlines())
    figure.suptitle(lines, x=0.01, ha="left", fontsize=7, color=QUIET)
    entries: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    if not entries:
        return
    width = figure.get_figwidth() - 0.5  # handle and gaps
    labels = [label if "\n" in label else wrapped(label, int(width / LETTER_INCHES)) for label in entries]
    longest = max(len(line) for label in labels for line in label.splitlines())
    column_inches = LETTER_INCHES * longest + 0.5
    ncols = ncols or min(len(labels), max(1, int(figure.get_figwidth() / column_inches)))
    num_lines = sum(label.count("\n") + 1 for label in labels) // ncols
    figure.set_figheight(figure.get_figheight() + 0.13 * max(0, num_lines - FEW_LINES))
    figure.legend(list(entries.values()), labels, loc="outside lower center", ncols=ncols)


def grid(axes: Axes, axis: str) -> None:
    """Faint lines behind the data."""
    axes.grid(axis=axis, color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def whole_numbers(axes: Axes, axis: str) -> None:
    """Ticks at whole numbers only, of what is counted."""
    from matplotlib.ticker import MaxNLocator

    getattr(axes, f"{axis}axis").set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))


def log_axis(axes: Axes) -> None:
    """Make the x axis logarithmic, with at least two numbers and at most a dozen."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    by_decade = LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,))
    axes.xaxis.set_major_locator(MaxNLocator(5) if high < 4 * low else by_decade)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def rows(names: Sequence[str], margin_inches: float) -> tuple[Figure, Axes]:
    """A figure with one named row for each thing to compare, from top to bottom, and so much room around the rows."""
    lines = max(name.count("\n") + 1 for name in names)
    picture = figure(margin_inches + max(0.31, 0.12 * lines + 0.07) * len(names))
    axes = picture.subplots()
    axes.set_yticks(range(len(names)), names, multialignment="right", linespacing=1.1)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    return picture, axes
