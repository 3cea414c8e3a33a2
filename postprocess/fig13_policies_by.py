"""Figs 13, 14: time-to-accuracy by policy, for each value of one input key."""

import sys

from hpctrip.figures.policies import policies_by

sys.exit(policies_by.numbered("fig13_policies_by", __doc__).main())
