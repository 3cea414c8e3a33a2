"""One run on one page."""

from paper.script import run_figure

run_figure("summary", __doc__)
