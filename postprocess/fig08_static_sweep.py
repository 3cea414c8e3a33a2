"""Fig 8: time-to-accuracy against the static k."""

from paper.script import run_figure

run_figure("sweep", __doc__)
