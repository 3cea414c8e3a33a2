"""Figures of results files and power traces, drawn by `hpctrip plot NAME` or called as functions.

    from hpctrip.figures import FIGURES
    FIGURES["curves"](runs, target=0.45)    # a Drawing: picture, table, lines

A new figure is a module here whose function `plot` is decorated with `figure(...)`; the module's docstring is its help.
Figures of one kind share a module; their functions have the names and the help of the figures.
"""

import re
from importlib import import_module

from hpctrip.base.text import unknown_name
from hpctrip.config.component import import_all
from hpctrip.figures.common.plot import FIGURES, Drawing, Plot

__all__ = ["FIGURES", "Drawing", "Plot", "successor", "unknown_figure"]

import_all(__name__)
import_module("hpctrip.cluster.figures")  # by name, so that this layer does not depend on a higher one

PAPER_FIGURES = {
    2: "power_utilisation",
    3: "power_over_time",
    5: "network",
    6: "equal_power",
    7: "equal_power",
    8: "sweep",
    9: "policies",
    10: "cohort_size",
    11: "gain",
    12: "policies",
    13: "policies_by",
    14: "policies_by",
}
"""{number of a figure in the PowerTrip paper: its name}; once they were called by number, as fig09_policies."""


def successor(name: str) -> str:
    """Today's name of a figure that is asked for by its number in the paper; empty where there is none."""
    match = re.fullmatch(r"fig0?(\d{1,2})(_\w*)?", name)
    return PAPER_FIGURES.get(int(match[1]), "") if match else ""


def unknown_figure(name: str) -> str:
    """The way out for a name that no figure has."""
    new = successor(name)
    return f"it is called {new!r} now: hpctrip plot {new}" if new else unknown_name(name, FIGURES)
