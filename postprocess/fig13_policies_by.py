"""Figs 13, 14: time-to-accuracy by policy, for each value of one input key. `--help` says more."""

import sys

from hpctrip.figures.fig13_policies_by import plot

sys.exit(plot.main())
