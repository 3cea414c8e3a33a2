"""One run on one page. `--help` says more."""

import sys

from hpctrip.figures.summary import plot

sys.exit(plot.main())
