"""Figs 9, 12: time-to-accuracy by policy."""

import sys

from hpctrip.figures.policies import plot

sys.exit(plot.numbered("fig09_policies", __doc__).main())
