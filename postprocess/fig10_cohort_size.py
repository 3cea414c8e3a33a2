"""Fig 10: cohort size against simulated time."""

from paper.script import run_figure

run_figure("cohort_size", __doc__)
