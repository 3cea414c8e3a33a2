"""Fig 5: bandwidth and delay against distance."""

import sys

from hpctrip.figures.network import plot

sys.exit(plot.numbered("fig05_network", __doc__).main())
