"""Fig 3: power of single domains over time."""

from paper.script import run_figure

run_figure("power_over_time", __doc__)
