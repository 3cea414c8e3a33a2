"""Fig 3: power of single domains over time. `--help` says more."""

import sys

from hpctrip.figures.fig03_power_over_time import plot

sys.exit(plot.main())
