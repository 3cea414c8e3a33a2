"""Fig 8: time-to-accuracy against the static k."""

import sys

from hpctrip.figures.sweep import plot

sys.exit(plot.numbered("fig08_static_sweep", __doc__).main())
