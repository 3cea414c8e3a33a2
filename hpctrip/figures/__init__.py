"""Figures of results files and power traces: one file each, drawn by `hpctrip plot NAME` or called as functions.

    from hpctrip.figures import FIGURES
    FIGURES["curves"](runs, target=0.45)    # a Drawing: picture, table, lines

What a new figure is: a module here whose function `plot` is decorated with `figure(...)`; its docstring is its help.
"""

from hpctrip.base.component import import_all
from hpctrip.figures.common.plot import FIGURES, Drawing, Plot

__all__ = ["FIGURES", "Drawing", "Plot"]

import_all(__name__)
