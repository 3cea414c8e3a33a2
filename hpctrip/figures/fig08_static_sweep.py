"""Figure 8: time-to-accuracy against the size k of a static cohort, and the best k (Eq. 9).

    python postprocess/fig08_static_sweep.py 'results/static-*.h5' [--target 0.45] [--out fig08.png]

Points are means over seeds with 95 % confidence intervals (Student t). Where a seed did not reach the target, the point
is open and a lower bound: the time that was spent. Such a k is never the best one.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np
from common import commandline, grouping, intervals, reading, style
from common.intervals import Times
from matplotlib.axes import Axes

from hpctrip.record.reader import InputError, Run


@commandline.script
def main(argv=None) -> None:
    """Draw a sweep over k, say where its minimum is and whether it is convex."""
    made = commandline.run_parser(__doc__, "fig08_static_sweep.png")
    made.add_argument("--policy", default="static", help="the policy that was swept (default: %(default)s)")
    commandline.target_option(made)
    args = made.parse_args(argv)
    runs = fixed_cohorts(reading.read_runs(args.runs), args.policy)
    target = reading.common_target(runs, args.target)
    unlike = grouping.warn_of_differences(grouping.grouped(runs))
    points = sweep(runs, target)
    reached = {k: point for k, point in points.items() if point.reached}
    best = min(reached, key=lambda k: reached[k].hours, default=None)

    commandline.print_table(
        ("k", "TTA h", "seeds", "reached", "best accuracy"),
        [
            (str(k), str(t), str(t.num_seeds), str(t.num_reached), f"{t.accuracy:.4f}")
            for k, t in points.items()
        ],
    )
    if best is None:
        print(f"best k (Eq. 9): none, no k reached {reading.percent(target)} with every seed")
    else:
        print(f"best k (Eq. 9): {best}, {reached[best]} h to {reading.percent(target)}")
    print(f"convex: {convexity(reached)}")

    figure = style.figure(2.5)
    axes = figure.subplots()
    draw(axes, points, best)
    axes.set_ylabel(f"Hours to {reading.percent(target)} accuracy")
    axes.set_title(f"{args.policy}; {reading.provenance(runs, unlike)}")
    if len(reached) < len(points):
        style.legend_below(figure)
    commandline.save(figure, args.out)


def draw(axes: Axes, points: dict[int, Times], best: int | None) -> None:
    """The sweep with its intervals, the bounds of what did not get there, and the minimum."""
    reached = {k: point for k, point in points.items() if point.reached}
    missed = {k: point for k, point in points.items() if not point.reached}
    hours, half_widths = (
        np.array([getattr(t, of) for t in reached.values()]) for of in ("hours", "half_width")
    )
    look = {
        "color": style.BLUE,
        "markersize": 4,
        "elinewidth": 0.8,
        "capsize": 2,
        "label": "mean over seeds, 95 % interval",
    }
    axes.errorbar(list(reached), hours, yerr=half_widths, fmt="-o", **look)
    axes.plot(
        list(missed),
        [t.hours for t in missed.values()],
        "^",
        markersize=6,
        markerfacecolor="white",
        color=style.VERMILLION,
        label="target not reached: time spent, best accuracy",
    )
    for k, t in missed.items():
        said = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 7}
        axes.annotate(reading.percent(t.accuracy), (k, t.hours), color=style.VERMILLION, **said)
    if best is not None:
        axes.axvline(best, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
        place = {
            "xycoords": ("data", "axes fraction"),
            "xytext": (3, -1),
            "textcoords": "offset points",
            "va": "top",
        }
        axes.annotate(f"k = {best}", (best, 1), **place)
    axes.set_xlabel("Sites in the cohort, k")
    axes.margins(x=0.08, y=0.15)
    axes.set_ylim(bottom=0)
    style.grid(axes, "y")


def fixed_cohorts(runs: list[Run], policy: str) -> list[Run]:
    """The runs of `policy` with one cohort size throughout; the others are named in print."""
    kept = []
    for run in runs:
        if run.meta["policy"] != policy:
            print(f"left out: {run.path}, policy {run.meta['policy']}")
        elif run.rounds["num_sites"].nunique() > 1:
            print(f"left out: {run.path}, its cohort size changes")
        else:
            kept.append(run)
    if not kept:
        raise InputError(
            str(runs[0].path),
            f"neither this nor another run is of policy {policy} with a fixed k",
            "name its --policy",
        )
    return kept


def sweep(runs: list[Run], target: float) -> dict[int, Times]:
    """{k: time-to-accuracy over seeds}, k ascending."""
    by_k: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_k[int(run.rounds["num_sites"].iloc[0])].append(run)
    for k, same in by_k.items():
        labels = [group.label for group in grouping.grouped(same)]
        if len(labels) > 1:
            raise InputError(
                str(same[-1].path), f"k = {k} is both {' and '.join(labels)}", "give one sweep at a time"
            )
    return {k: intervals.times(by_k[k], target) for k in sorted(by_k)}


def convexity(points: dict[int, Times]) -> str:
    """Whether the curve of means is convex, by its second (divided) differences."""
    k = np.array(list(points))
    if len(k) < 3:
        return f"not decidable from {len(k)} k that reached the target, three are needed"
    slopes = np.diff([t.hours for t in points.values()]) / np.diff(k)
    bends_down = k[1:-1][np.diff(slopes) < 0]
    if len(bends_down):
        return f"no, the second difference is negative at k = {', '.join(map(str, bends_down))}"
    return f"yes, no second difference of these {len(k)} means is negative"


if __name__ == "__main__":
    sys.exit(main())
