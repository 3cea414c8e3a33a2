"""Figs 9, 12: time-to-accuracy by policy. `--help` says more."""

import sys

from hpctrip.figures.fig09_policies import plot

sys.exit(plot.main())
