"""Fig 11: accuracy of larger fixed cohorts over the smallest, round by round. `--help` says more."""

import sys

from hpctrip.figures.fig11_gain import plot

sys.exit(plot.main())
