"""Fig 2: power utilisation of every cell of a trace."""

import sys

from hpctrip.figures.traces import power_utilisation

sys.exit(power_utilisation.numbered("fig02_power_utilisation", __doc__).main())
