"""Figs 13, 14: time-to-accuracy by policy, for each value of one input key."""

from paper.script import run_figure

run_figure("policies_by", __doc__)
