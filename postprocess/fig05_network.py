"""Fig 5: bandwidth and delay against distance."""

from paper.script import run_figure

run_figure("network", __doc__)
