"""Fig 11: accuracy of larger fixed cohorts over the smallest, round by round."""

import sys

from hpctrip.figures.sweeps import gain

sys.exit(gain.numbered("fig11_gain", __doc__).main())
