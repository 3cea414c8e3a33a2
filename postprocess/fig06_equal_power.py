"""Figs 6, 7 a-c: accuracy, time and speed-up against k at equal power and without a WAN."""

import sys

from hpctrip.figures.sweeps import equal_power

sys.exit(equal_power.numbered("fig06_equal_power", __doc__).main())
