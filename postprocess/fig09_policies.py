"""Figs 9, 12: time-to-accuracy by policy."""

from paper.script import run_figure

run_figure("policies", __doc__)
