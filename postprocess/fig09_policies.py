"""Figs 9, 12: time-to-accuracy by policy."""

import sys

from hpctrip.figures.policies import policies

sys.exit(policies.numbered("fig09_policies", __doc__).main())
