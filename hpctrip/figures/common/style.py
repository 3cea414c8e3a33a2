"""How pictures look: one column of a paper, colours told apart by everyone, an empty figure and its legend."""

from __future__ import annotations

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN_INCHES = 3.35
"""Width of one column of a two-column paper."""

# Okabe and Ito's palette: told apart with every common colour blindness and in grey.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PINK, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#8A8A8A"
CYCLE = (BLUE, VERMILLION, GREEN, ORANGE, PINK, SKY, "#000000")

matplotlib.rcParams.update(
    {
        "font.size": 8,
        "axes.titlesize": 7,
        "axes.titlelocation": "left",
        "axes.titlecolor": "#555555",
        "axes.labelsize": 8,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
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
        "pdf.fonttype": 42,  # text stays text in a PDF
        "svg.fonttype": "none",
    }
)


def figure(height_inches: float, width_inches: float = COLUMN_INCHES) -> Figure:
    """An empty figure of a column's width whose parts never overlap."""
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def legend_below(figure: Figure) -> None:
    """A legend below everything, in as many columns as fit the figure's width."""
    labels = [label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]]
    column_inches = 0.055 * max(map(len, labels), default=0) + 0.5  # a 7 point letter, a handle and the gaps
    ncols = min(len(labels), max(1, int(figure.get_figwidth() / column_inches)))
    figure.legend(loc="outside lower center", ncols=ncols)


def grid(axes: Axes, axis: str) -> None:
    """Faint lines behind the data."""
    axes.grid(axis=axis, color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
