"""Fig 2: power utilisation of every cell of a trace."""

from paper.script import run_figure

run_figure("power_utilisation", __doc__)
