"""Figs 6, 7 a-c: accuracy, time and speed-up against k at equal power and without a WAN."""

from paper.script import run_figure

run_figure("equal_power", __doc__)
