"""Figures of results files and power traces, drawn by `hpctrip plot NAME` or called as functions.

    from hpctrip.figures import FIGURES
    FIGURES["curves"](runs, target=0.45)    # a Drawing: picture, table, lines

A new figure is a module here whose function `plot` is decorated with `figure(...)`; the module's docstring is its help.
Figures of one kind share a module; their functions have the names and the help of the figures.
"""

from importlib import import_module

from hpctrip.config.component import import_all
from hpctrip.figures.common.plot import FIGURES, Drawing, Plot

__all__ = ["FIGURES", "Drawing", "Plot"]

import_all(__name__)
import_module("hpctrip.cluster.figures")  # by name, so that this layer does not depend on a higher one
