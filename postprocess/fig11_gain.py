"""Fig 11: accuracy of larger fixed cohorts over the smallest, round by round."""

from paper.script import run_figure

run_figure("gain", __doc__)
