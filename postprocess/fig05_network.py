"""Fig 5: bandwidth and delay against distance. `--help` says more."""

import sys

from hpctrip.figures.fig05_network import plot

sys.exit(plot.main())
