"""Figure 10: cohort size k against simulated time, one step curve for each run.

    python postprocess/fig10_cohort_size.py powertrip.h5 static-70.h5 [--out fig10.png]

With one powertrip and one static run, the area by which the static cohort is larger while both train is shaded: its
site overhead.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from common import commandline, grouping, reading, style
from matplotlib.axes import Axes


@commandline.script
def main(argv=None) -> None:
    """Draw the cohort size of every run given."""
    args = commandline.run_parser(__doc__, "fig10_cohort_size.png").parse_args(argv)
    runs = reading.read_runs(args.runs)

    figure = style.figure(2.4)
    axes = figure.subplots()
    rows = []
    groups = grouping.grouped(runs)
    unlike = grouping.warn_of_differences(groups)
    for i, group in enumerate(groups):
        look = {
            "color": style.CYCLE[i % len(style.CYCLE)],
            "linestyle": "--" if group.policy == "static" else "-",
        }
        for run in group.runs:
            hours, k = reading.cohort_steps(run.rounds)
            axes.step(hours, k, where="post", label=group.label if run is group.runs[0] else None, **look)
            reached = np.isfinite(run.time_to_accuracy_s)
            end = "o" if reached else "x"
            axes.plot(hours[-1], k[-1], end, color=look["color"], markersize=4, clip_on=False)
            mean = np.average(k[:-1], weights=np.diff(hours))
            sizes = str(k[0]), str(k.max()), str(k[-1]), f"{mean:.1f}"
            rows.append(
                (group.label, str(run.meta["seed"]), *sizes, f"{hours[-1]:.3g}", "yes" if reached else "no")
            )
    commandline.print_table(
        ("policy", "seed", "first k", "largest k", "last k", "mean k over time", "hours", "target reached"),
        rows,
    )
    by_policy = {run.meta["policy"]: run for run in runs}
    if len(runs) == 2 and set(by_policy) == {"powertrip", "static"}:
        shade_overhead(axes, by_policy["static"].rounds, by_policy["powertrip"].rounds)
    if any(np.isnan(run.time_to_accuracy_s) for run in runs):
        axes.plot([], [], "x", color="black", markersize=4, label="target not reached")
    axes.set_xlabel("Simulated time (hours)")
    axes.set_ylabel("Sites in the cohort, k")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_title(reading.provenance(runs, unlike))
    style.legend_below(figure)
    commandline.save(figure, args.out)


def shade_overhead(axes: Axes, static: pd.DataFrame, powertrip: pd.DataFrame) -> None:
    """Shade where the static cohort is the larger one, and print the area in site-hours."""
    static_h, static_k = reading.cohort_steps(static)
    dynamic_h, dynamic_k = reading.cohort_steps(powertrip)
    hours = np.union1d(static_h, dynamic_h)
    hours = hours[hours <= min(static_h[-1], dynamic_h[-1])]
    lower = dynamic_k[np.searchsorted(dynamic_h, hours, side="right") - 1]
    upper = np.maximum(lower, static_k[np.searchsorted(static_h, hours, side="right") - 1])
    area = float(np.sum((upper - lower)[:-1] * np.diff(hours)))
    axes.fill_between(
        hours, lower, upper, step="post", color=style.ORANGE, alpha=0.3, lw=0, label="site overhead"
    )
    print(f"site overhead of static over powertrip: {area:.3g} site-hours")


if __name__ == "__main__":
    sys.exit(main())
