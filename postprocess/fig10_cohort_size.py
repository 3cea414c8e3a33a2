"""Fig 10: cohort size against simulated time. `--help` says more."""

import sys

from hpctrip.figures.fig10_cohort_size import plot

sys.exit(plot.main())
