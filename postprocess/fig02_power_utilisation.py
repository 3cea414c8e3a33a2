"""Fig 2: power utilisation of every cell of a trace."""

import sys

from hpctrip.figures.power_utilisation import plot

sys.exit(plot.numbered("fig02_power_utilisation", __doc__).main())
