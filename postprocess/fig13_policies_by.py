"""Figs 13, 14: time-to-accuracy by policy, for each value of one input key."""

import sys

from hpctrip.figures.policies_by import plot

sys.exit(plot.numbered("fig13_policies_by", __doc__).main())
