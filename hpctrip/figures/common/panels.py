"""Many curves that nobody could tell apart in one panel: one panel each, with the others behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpctrip.figures.common import style
from hpctrip.figures.common.grouping import Group

ONE_PANEL = 4
"""So many curves share one panel."""
MOST = 60
"""So many panels are still looked at: bound the names."""
COLUMNS = 3
NAME_LENGTH = 36
"""Letters of a line that fit over a panel."""
OTHERS = "; grey: all others"
"""What a heading says of the curves of `behind`."""


def of_groups(groups: Sequence[Group]) -> tuple[Figure, list[Axes]]:
    """A figure, and the axes of every group: one and the same where there are few groups, else a panel each.

    The panels share their scales.
    """
    names = [style.counted_name(group.label, len(group.runs), NAME_LENGTH) for group in groups]
    if len(names) <= ONE_PANEL:
        figure = style.figure(2.6)
        return figure, [figure.subplots()] * len(names)
    rows = -(-len(names) // COLUMNS)
    lines = max(name.count("\n") + 1 for name in names)
    figure = style.figure(0.7 + (1.15 + 0.12 * lines) * rows, style.PAGE_INCHES)
    panels = list(figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        axes.set_title(name, color="black")
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[max(0, len(names) - COLUMNS) : len(names)]:
        axes.tick_params(labelbottom=True)
    return figure, panels[: len(names)]


def behind(panels: Sequence[Axes], curves: Sequence[tuple[np.ndarray, np.ndarray]], **look: object) -> None:
    """Where every name has a panel: all curves (x, y) in each, faint, to compare with."""
    if len(panels) <= ONE_PANEL:
        return
    x, y = (np.concatenate([np.append(curve[of], np.nan) for curve in curves]) for of in (0, 1))
    for axes in panels:
        axes.plot(x, y, color=style.FAINT, linewidth=0.5, zorder=0, **look)


def labels(figure: Figure, panels: Sequence[Axes], x: str, y: str) -> None:
    """What the axes are: y is said once."""
    for axes in panels[-COLUMNS:]:
        axes.set_xlabel(x)
    if len(panels) <= ONE_PANEL:
        panels[0].set_ylabel(y)
    else:
        figure.supylabel(y, fontsize=8)
