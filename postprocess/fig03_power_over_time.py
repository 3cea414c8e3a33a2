"""Fig 3: power of single domains over time."""

import sys

from hpctrip.figures.power_over_time import plot

sys.exit(plot.numbered("fig03_power_over_time", __doc__).main())
