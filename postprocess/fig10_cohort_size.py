"""Fig 10: cohort size against simulated time."""

import sys

from hpctrip.figures.cohort_size import plot

sys.exit(plot.numbered("fig10_cohort_size", __doc__).main())
