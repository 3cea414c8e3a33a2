"""Fig 3: power of single domains over time."""

import sys

from hpctrip.figures.traces import power_over_time

sys.exit(power_over_time.numbered("fig03_power_over_time", __doc__).main())
