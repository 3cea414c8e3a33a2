"""Fig 2: power utilisation of every cell of a trace. `--help` says more."""

import sys

from hpctrip.figures.fig02_power_utilisation import plot

sys.exit(plot.main())
