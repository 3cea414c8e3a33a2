"""Figure 2: power utilisation of every cell of a trace, mean with minimum and maximum over its domains and times.

    python postprocess/fig02_power_utilisation.py TRACES [--column production] [--out fig02.png]

TRACES is a folder of cell*.csv.gz files as Google publishes them (PowerData2019), one such file, or a quoted pattern.
"""

from __future__ import annotations

import sys

import numpy as np
from common import commandline, reading, style

from hpctrip.record.reader import read_traces


@commandline.script
def main(argv=None) -> None:
    """Draw one bar for each cell."""
    args = commandline.trace_parser(__doc__, "fig02_power_utilisation.png").parse_args(argv)
    traces = read_traces(args.traces, args.column, args.flags)
    cells = traces.groupby("cell").agg(
        domains=("domain", "nunique"),
        mean=("utilisation", "mean"),
        low=("utilisation", "min"),
        high=("utilisation", "max"),
    )
    commandline.print_table(
        ("cell", "domains", "mean", "min", "max", "mean spare"),
        [
            (
                str(c.Index),
                str(c.domains),
                f"{c.mean:.3f}",
                f"{c.low:.3f}",
                f"{c.high:.3f}",
                f"{1 - c.mean:.3f}",
            )
            for c in cells.itertuples()
        ],
    )
    print(f"mean utilisation of {len(cells)} cells: {cells['mean'].min():.1%} to {cells['mean'].max():.1%}")

    figure = style.figure(2.1)
    axes = figure.subplots()
    reach = np.array([cells["mean"] - cells["low"], cells["high"] - cells["mean"]])
    reach = 100 * reach.clip(min=0)  # the mean of equal values may miss them by one rounding
    names = cells.index.astype(str)
    axes.bar(
        names,
        100 * cells["mean"],
        0.65,
        yerr=reach,
        color=style.SKY,
        capsize=2,
        error_kw={"elinewidth": 0.8},
    )
    axes.margins(x=max(0.02, 0.5 / len(cells)))
    axes.set_ylim(0, 100)
    axes.set_xlabel("Cell")
    axes.set_ylabel(f"{args.column.capitalize()} power\nutilisation (%)")
    axes.set_title(reading.trace_title(traces))
    style.grid(axes, "y")
    commandline.save(figure, args.out)


if __name__ == "__main__":
    sys.exit(main())
