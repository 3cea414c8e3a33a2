"""Power utilisation of every cell of a trace.

Bars are means over the cell's domains and all times; whiskers reach from the lowest to the highest single sample of
any of its domains. They are a range, not an interval of confidence.

TRACES is a folder of cell*.csv.gz files as Google publishes them (PowerData2019), one such file, or a quoted pattern.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpctrip.base.text import printable
from hpctrip.figures.common import reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import TRACES


@figure(TRACES)
def plot(traces: pd.DataFrame) -> Drawing:
    """One bar for each cell."""
    cells = traces.groupby("cell").agg(
        num_domains=("domain", "nunique"),
        num_samples=("utilisation", "size"),
        mean=("utilisation", "mean"),
        min=("utilisation", "min"),
        max=("utilisation", "max"),
    )
    cells.index = cells.index.map(lambda name: printable(name, 12))
    cells["mean_spare"] = 1 - cells["mean"]

    picture = style.figure(2.4, max(style.COLUMN_INCHES, 0.6 + 0.22 * len(cells)))
    axes = picture.subplots()
    reach = np.array([cells["mean"] - cells["min"], cells["max"] - cells["mean"]])
    reach = 100 * reach.clip(min=0)  # the mean of equal values may miss them by one rounding
    places = np.arange(len(cells))
    bars = axes.bar(places, 100 * cells["mean"], 0.65, color=style.SKY)
    whiskers = axes.errorbar(
        places, 100 * cells["mean"], yerr=reach, fmt="none", color="black", capsize=2, elinewidth=0.8
    )
    axes.set_xticks(places, [f"{name}\n{size}" for name, size in cells["num_domains"].items()])
    axes.margins(x=max(0.02, 0.5 / len(cells)))
    axes.set_ylim(0, 100)
    axes.set_xlabel("Cell, and its number of power domains")
    axes.set_ylabel(f"{traces.attrs['column'].capitalize()} power\nutilisation (%)")
    style.heading(picture, reading.trace_title(traces))
    style.grid(axes, "y")
    whisker_label = f"lowest to highest {reading.step_words(traces)} sample"
    style.legend_below(picture, [(bars, "mean"), (whiskers, whisker_label)])

    numbers = cells[["mean", "min", "max", "mean_spare"]]
    rows = [
        (str(cell), str(cells["num_domains"][cell]), *(f"{value:.3f}" for value in row))
        for cell, row in zip(cells.index, numbers.itertuples(index=False), strict=True)
    ]
    low, high = cells["mean"].min(), cells["mean"].max()
    lines = [
        *aligned(("cell", "domains", "mean", "min", "max", "mean spare"), rows),
        f"mean utilisation of {reading.counted(len(cells), 'cell')}: {low:.1%} to {high:.1%}",
    ]
    return Drawing(picture, cells.reset_index(), lines)
