"""Figs 6, 7 a-c: accuracy, time and speed-up against k at equal power and without a WAN. `--help` says more."""

import sys

from hpctrip.figures.fig06_equal_power import plot

sys.exit(plot.main())
