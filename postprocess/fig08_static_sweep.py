"""Fig 8: time-to-accuracy against the static k. `--help` says more."""

import sys

from hpctrip.figures.fig08_static_sweep import plot

sys.exit(plot.main())
