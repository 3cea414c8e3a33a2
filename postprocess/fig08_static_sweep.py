"""Fig 8: time-to-accuracy against the static k."""

import sys

from hpctrip.figures.sweeps import sweep

sys.exit(sweep.numbered("fig08_static_sweep", __doc__).main())
