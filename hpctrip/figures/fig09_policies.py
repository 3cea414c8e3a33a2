"""Figures 9 and 12: time-to-accuracy by policy.

    python postprocess/fig09_policies.py results/*.h5 [--target 0.45] [--reference powertrip] [--out fig09.png]

Runs that differ in more than their seed are bars of their own, labelled with what differs. Where the bars are not alike
in what is no part of their policy (data, timing, network, ...), a warning and the picture say in what.

Bars are means over seeds with 95 % confidence intervals (Student t). Where a seed did not reach the target, the
bar is hatched and a lower bound: the time that was spent.
"""

from __future__ import annotations

import sys

import numpy as np
from common import commandline, grouping, intervals, reading, style
from common.grouping import Group
from common.intervals import Times
from matplotlib.axes import Axes

from hpctrip.record.reader import InputError

Bar = tuple[Group, Times]


@commandline.script
def main(argv=None) -> None:
    """Draw the policies of the runs given, fastest first."""
    made = commandline.run_parser(__doc__, "fig09_policies.png")
    made.add_argument(
        "--reference", metavar="LABEL", help="bar to compare with (default: the fastest powertrip)"
    )
    commandline.target_option(made)
    args = made.parse_args(argv)
    runs = reading.read_runs(args.runs)
    target = reading.common_target(runs, args.target)
    groups = grouping.grouped(runs)
    unlike = grouping.warn_of_differences(groups)
    bars = [(group, intervals.times(group.runs, target)) for group in groups]
    bars.sort(key=lambda bar: (not bar[1].reached, bar[1].hours))
    reference = reference_bar(bars, args.reference)

    commandline.print_table(
        ("policy", "TTA h", "seeds", "reached", "best accuracy", "ratio", "less time"),
        [
            (
                g.label,
                str(t),
                str(t.num_seeds),
                str(t.num_reached),
                f"{t.accuracy:.4f}",
                *compared(t, reference),
            )
            for g, t in bars
        ],
    )
    if reference:
        print(f"ratio: hours over those of {reference[0].label}, which takes that much less time")
    order = " < ".join(group.label for group, t in bars if t.reached)
    print(f"order at {reading.percent(target)}: {order or 'none, nothing reached it with every seed'}")

    figure = style.figure(0.75 + 0.31 * len(bars))
    axes = figure.subplots()
    draw(axes, bars)
    axes.set_xlabel(f"Hours to {reading.percent(target)} accuracy")
    figure.suptitle(reading.provenance(runs, unlike), x=0.01, ha="left", fontsize=7, color="#555555")
    commandline.save(figure, args.out)


def draw(axes: Axes, bars: list[Bar]) -> None:
    """One bar for each group, from top to bottom."""
    for y, (group, t) in enumerate(bars):
        colour = style.BLUE if group.policy == "powertrip" else style.SKY
        look = (
            {"color": colour}
            if t.reached
            else {"facecolor": "white", "edgecolor": style.GREY, "hatch": "////"}
        )
        interval = {} if np.isnan(t.half_width) else {"xerr": t.half_width, "capsize": 2}
        axes.barh(y, t.hours, height=0.7, error_kw={"elinewidth": 0.8}, **interval, **look)
        said = f"{t.hours:.3g}" if t.reached else f"> {t.hours:.3g}, only {reading.percent(t.accuracy)}"
        end = t.hours + np.nan_to_num(t.half_width)
        axes.annotate(said, (end, y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    names = [g.label.replace(f"{g.policy} ", f"{g.policy}\n", 1) for g, _ in bars]
    axes.set_yticks(range(len(bars)), names, multialignment="right", linespacing=1.1)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    # room for what is written at the end of the longest bar, in its own units
    ends = ((t.hours + np.nan_to_num(t.half_width)) * (1.2 if t.reached else 1.75) for _, t in bars)
    axes.set_xlim(0, max(ends))


def reference_bar(bars: list[Bar], label: str | None) -> Bar | None:
    """The bar to compare with: the one named, else the first powertrip that reached the target, else None."""
    if label is None:
        return next((bar for bar in bars if bar[0].policy == "powertrip" and bar[1].reached), None)
    for bar in bars:
        if bar[0].label == label:
            return bar
    known = ", ".join(group.label for group, _ in bars)
    raise InputError("--reference", f"no bar is labelled {label!r}", f"the labels are {known}")


def compared(t: Times, reference: Bar | None) -> tuple[str, str]:
    """(its hours over the reference's, how much less time the reference takes); bounds where not reached."""
    if reference is None or not reference[1].reached:
        return "-", "-"
    ratio = t.hours / reference[1].hours
    bound = "" if t.reached else "> "
    return f"{bound}{ratio:.2f}", f"{bound}{100 * (1 - 1 / ratio):.0f} %"


if __name__ == "__main__":
    sys.exit(main())
