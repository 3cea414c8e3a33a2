"""Figs 6, 7 a-c: accuracy, time and speed-up against k at equal power and without a WAN."""

import sys

from hpctrip.figures.equal_power import plot

sys.exit(plot.numbered("fig06_equal_power", __doc__).main())
