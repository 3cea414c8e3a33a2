"""Figures over simulated time: accuracy, with bands over seeds, cohort size, and power that sites draw.

Up to four configurations share a panel, each with a colour and dashes of its own. More get a panel each, with all
others grey behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.base.stats import mean_interval
from hpctrip.base.text import aligned
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import RUNS, TARGET, WHOLE_RUNS
from hpctrip.record.event_report import Event, events_of, mean_draw_w, world_of
from hpctrip.record.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_PANEL = 4
"""Largest number of curves that share one panel."""
MOST_PANELS = 60
"""Largest number of panels in a legible figure."""
COLUMNS = 3
NAME_LENGTH = 36
"""Number of letters of a line that fit over a panel."""
STEPS = 120
"""Means over time in a curve of power."""
MEAN_COLUMNS = ("hours", "accuracy_percent", "low", "high")

Curve = tuple[np.ndarray, np.ndarray]
"""Hours and values of a run."""


class Place(NamedTuple):
    """Axes and line style in which the curves of a group are drawn."""

    axes: Axes
    look: dict[str, Any]
    name: str | None
    """The name in the legend; None in a panel of its own, which has a title."""


@figure(RUNS, TARGET)
def curves(runs: Sequence[Run], target: float | None = None) -> Drawing:
    """Accuracy against simulated time, bands over seeds.

    Thin lines are single seeds, straight from one evaluation to the next. Where all n seeds of a configuration are
    running, the thick line is their mean and, above three seeds, the band its 95 % confidence interval (Student t);
    after the first of them has ended there is no mean, because those that are left are not the same draw. Up to four
    configurations share a panel, more get one each.
    """
    goals = {target} if target else {float(run.meta["target_accuracy"]) for run in runs}
    goal = goals.pop() if len(goals) == 1 else np.nan  # several goals are no common line
    groups, picture, places, caption = panels_of(runs, evaluated)
    rows, tables = [], []
    for group, place in zip(groups, places, strict=True):
        mean = mean_of(group)
        if len(group.runs) > 1:
            for run in group.runs:
                place.axes.plot(*evaluated(run), color=place.look["color"], linewidth=0.5, alpha=0.6)
        draw_mean(*place, mean, len(group.runs))
        rows.append(line_of(group, mean, goal))
        points = [(str(run.meta["seed"]), *evaluated(run), np.nan, np.nan, 1) for run in group.runs]
        if len(group.runs) > 1:  # the mean is a row without a seed
            points.append(("", *(mean[name] for name in MEAN_COLUMNS), len(group.runs)))
        names = ("seed", *MEAN_COLUMNS, "n")
        tables += [pd.DataFrame({"label": group.label} | dict(zip(names, p, strict=True))) for p in points]
    for axes in dict.fromkeys(place.axes for place in places):
        if np.isfinite(goal):
            draw_target(axes, goal)
    label_panels(picture, places, "Simulated time (hours)", "Held-out accuracy (%)")
    numbers = [len(group.runs) for group in groups]
    many = "; thin: single seeds, thick: their mean" if max(numbers) > 1 else ""
    bands = ", bands: its 95 % interval" if style.has_whiskers(max(numbers)) else ""
    style.finish(picture, f"{style.counts(numbers)}; {caption}{many}{bands}")
    head = ("configuration", "n", "all run until h", "mean accuracy there", "best", "hours to target")
    return Drawing(picture, pd.concat(tables, ignore_index=True), aligned(head, rows))


def evaluated(run: Run) -> Curve:
    """(hours, accuracy in %) of a run's evaluations."""
    rounds = run.rounds.dropna(subset="accuracy")
    return rounds["clock_s"].to_numpy() / HOUR_S, 100 * rounds["accuracy"].to_numpy()


def mean_of(group: Group) -> pd.DataFrame:
    """The mean accuracy in % with its interval at every time where all seeds have been evaluated and none has ended,
    columns MEAN_COLUMNS; the interval of one seed is NaN."""
    runs = [evaluated(run) for run in group.runs]
    if any(len(hours) == 0 for hours, _ in runs):
        return pd.DataFrame(columns=MEAN_COLUMNS, dtype=float)
    first, last = max(hours[0] for hours, _ in runs), min(hours[-1] for hours, _ in runs)
    times = np.unique(np.concatenate([hours for hours, _ in runs]))
    times = times[(times >= first) & (times <= last)]
    mean, half = mean_interval([np.interp(times, hours, values) for hours, values in runs])
    columns = times, mean, np.maximum(mean - half, 0), np.minimum(mean + half, 100)
    return pd.DataFrame(dict(zip(MEAN_COLUMNS, columns, strict=True)))


def draw_mean(axes: Axes, look: dict[str, Any], name: str | None, mean: pd.DataFrame, n: int) -> None:
    """The line of a mean of n seeds, in its band."""
    if style.has_whiskers(n):
        style.band(axes, mean["hours"], mean["low"], mean["high"], look)
    (line,) = axes.plot(mean["hours"], mean["accuracy_percent"], label=name, **look)
    style.mark_point(line)


def draw_target(axes: Axes, target: float) -> None:
    """A line at the target accuracy."""
    look = {"color": style.GREY, "linestyle": ":", "linewidth": 1}
    axes.axhline(100 * target, label=f"target {reading.percent(target)}", **look)


def line_of(group: Group, mean: pd.DataFrame, goal: float) -> tuple[str, ...]:
    """One line of the printed table."""
    there, until = "none", "-"
    for row in mean.tail(1).itertuples():
        there, until = f"{row.accuracy_percent:.3g} %", f"{row.hours:.3g}"
        if np.isfinite(row.low):
            there += f" ({row.low:.3g} % to {row.high:.3g} %)"
    times = group.times(goal)
    hours = str(times) if np.isfinite(goal) else "-"
    return group.label, str(times.num_seeds), until, there, reading.percent(times.best_accuracy), hours


@figure(RUNS)
def cohort_size(runs: Sequence[Run]) -> Drawing:
    """Cohort size against simulated time.

    One step curve for each run. Up to four configurations share a panel, each with a colour and dashes of its own. More
    get a panel each, with all others grey behind it. With one powertrip and one static run, the area by which the
    static cohort is larger while both train is shaded: its site overhead.
    """
    groups, picture, places, caption = panels_of(runs, reading.cohort_steps, drawstyle="steps-post")
    rows, tables = [], []
    for group, (axes, look, name) in zip(groups, places, strict=True):
        for run in group.runs:
            hours, k = reading.cohort_steps(run)
            axes.step(hours, k, where="post", label=name, **look)
            end = end_mark(run)
            axes.plot(hours[-1], k[-1], end, color=look["color"], markersize=4, clip_on=False)
            mean = np.average(k[:-1], weights=np.diff(hours))
            sizes = str(k[0]), str(k.max()), str(k[-1]), f"{mean:.1f}"
            seed = run.meta["seed"]
            rows.append((group.label, str(seed), *sizes, f"{hours[-1]:.3g}", "yes" if end == "o" else "no"))
            named = {"label": group.label, "seed": seed, "round": run.rounds["round"]}
            tables.append(pd.DataFrame(named | {"start_h": hours[:-1], "end_h": hours[1:], "k": k[:-1]}))
    head = ("policy", "seed", "first k", "largest k", "last k", "mean k over time", "hours", "target reached")
    lines = aligned(head, rows)

    by_policy = {run.meta["policy"]: run for run in runs}
    if len(runs) == 2 and set(by_policy) == {"powertrip", "static"}:
        area = shade_overhead(places[0].axes, by_policy["static"], by_policy["powertrip"])
        lines.append(f"site overhead of static over powertrip: {area:.3g} site-hours")
    ends = {"o": "end: target reached", "x": "end: target not reached"}
    for marker in sorted({end_mark(run) for run in runs}):
        places[0].axes.plot([], [], marker, color="black", markersize=4, label=ends[marker])
    style.whole_numbers(places[0].axes, "y")
    label_panels(picture, places, "Simulated time (hours)", "Sites in the cohort, k")
    many = "; a line for every seed" if len(runs) > len(groups) else ""
    style.finish(picture, f"{style.counts([len(group.runs) for group in groups])}; {caption}{many}")
    return Drawing(picture, pd.concat(tables, ignore_index=True), lines)


def end_mark(run: Run) -> str:
    """The mark at the end of a run: whether it reached its target."""
    return "o" if np.isfinite(run.time_to_accuracy_s) else "x"


def shade_overhead(axes: Axes, static: Run, powertrip: Run) -> float:
    """Shade where the static cohort is the larger one; its area in site-hours."""
    static_h, static_k = reading.cohort_steps(static)
    dynamic_h, dynamic_k = reading.cohort_steps(powertrip)
    hours = np.union1d(static_h, dynamic_h)
    hours = hours[hours <= min(static_h[-1], dynamic_h[-1])]
    lower = dynamic_k[np.searchsorted(dynamic_h, hours, side="right") - 1]
    upper = np.maximum(lower, static_k[np.searchsorted(static_h, hours, side="right") - 1])
    look = {"step": "post", "color": style.ORANGE, "alpha": 0.3, "linewidth": 0}
    axes.fill_between(hours, lower, upper, label="site overhead", **look)
    return float(np.sum((upper - lower)[:-1] * np.diff(hours)))


@figure(WHOLE_RUNS)
def events(runs: Sequence[Run]) -> Drawing:
    """Power that the sites draw, with the events of [availability].

    The mean draw of a site, by the records: of all sites (thin) and of those that an event concerns (thick), means over
    the seeds as long as all run. Events are shaded; a dotted line marks the announcement of one. Where there are
    events, time is drawn from one duration before the first to one after the last.
    """
    of_run = {run.path: events_of(run, world) if (world := world_of(run)) else [] for run in runs}

    def draws(run: Run, sites: np.ndarray | None = None) -> Curve:
        edges_s = edges_of(run, of_run[run.path])
        if sites is None:
            concerned = [event.sites for event in of_run[run.path]]
            sites = np.unique(np.concatenate(concerned)) if concerned else run.sites["site"].to_numpy()
        kilowatts = mean_draw_w(run, sites, edges_s) / len(sites) / 1e3
        return (edges_s[:-1] + edges_s[1:]) / 2 / HOUR_S, kilowatts

    groups, picture, places, caption = panels_of(runs, draws)
    rows, tables = [], []
    for group, place in zip(groups, places, strict=True):
        every = group.runs[0].sites["site"].to_numpy()
        draws_of = {
            who: [draws(run, of) for run in group.runs] for who, of in (("concerned", None), ("all", every))
        }
        last_h = min(hours[-1] for hours, _ in draws_of["all"])
        hours = np.linspace(draws_of["all"][0][0][0], last_h, STEPS)
        means = {
            who: np.mean([np.interp(hours, *each) for each in of], axis=0) for who, of in draws_of.items()
        }
        place.axes.plot(hours, means["all"], linewidth=0.6, **place.look)
        place.axes.plot(hours, means["concerned"], label=place.name, **place.look)
        for event in of_run[group.runs[0].path]:
            span_h, announced_h = (event.start_s / HOUR_S, event.end_s / HOUR_S), event.announced_s / HOUR_S
            place.axes.axvspan(*span_h, color=style.FAINT, alpha=0.5, linewidth=0)
            if 0 <= announced_h < span_h[0]:
                place.axes.axvline(announced_h, color=style.QUIET, linestyle=":", linewidth=0.8)
        rows.append((group.label, str(len(group.runs)), *(f"{means[who].mean():.3g}" for who in means)))
        columns = {"label": group.label, "hours": hours, **{f"{who}_kw": of for who, of in means.items()}}
        tables.append(pd.DataFrame(columns))
    label_panels(picture, places, "Simulated time (hours)", "Power drawn by a site (kW)")
    places[0].axes.set_xlim(min(table["hours"].min() for table in tables))
    numbers = [len(group.runs) for group in groups]
    looks = "no event of [availability] began in these runs"
    if any(of_run.values()):
        looks = "thick: sites of the events, thin: all sites; shaded: events, dotted: their announcement"
    style.finish(picture, f"{style.counts(numbers)}; {caption}\n{looks}")
    head = ("configuration", "n", "kW of a site of the events", "kW of any site")
    return Drawing(picture, pd.concat(tables, ignore_index=True), aligned(head, rows))


def edges_of(run: Run, events: Sequence[Event]) -> np.ndarray:
    """The times [STEPS + 1] between which the power of a run is averaged, in s."""
    begin_s, end_s = 0.0, float(run.rounds["clock_s"].iloc[-1])
    if events:
        lengths_s = [event.end_s - min(event.start_s, event.announced_s) for event in events]
        begin_s = max(begin_s, min(event.start_s for event in events) - max(lengths_s))
        end_s = min(end_s, max(event.end_s for event in events) + max(lengths_s))
    return np.linspace(begin_s, end_s, STEPS + 1)


def panels_of(
    runs: Sequence[Run], curve_of: Callable[[Run], Curve], **look_of_others: Any
) -> tuple[list[Group], Figure, list[Place], str]:
    """(groups of the runs, a figure, the place of every group, the caption). Few groups share one panel; else each has
    its own, all with the same scales, with the curves of all runs drawn faintly behind."""
    groups, caption = grouping.compared(runs, MOST_PANELS)
    if len(groups) <= ONE_PANEL:
        picture = style.figure(2.6)
        axes = picture.subplots()
        names = [style.counted_name(group.label, len(group.runs), 48) for group in groups]
        places = [Place(axes, style.line(i), name) for i, name in enumerate(names)]
        return groups, picture, places, caption
    names = [style.counted_name(group.label, len(group.runs), NAME_LENGTH) for group in groups]
    num_rows = -(-len(names) // COLUMNS)
    lines = max(name.count("\n") + 1 for name in names)
    picture = style.figure(0.7 + (1.15 + 0.12 * lines) * num_rows, style.PAGE_INCHES)
    panels = list(picture.subplots(num_rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat)
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[max(0, len(names) - COLUMNS) : len(names)]:
        axes.tick_params(labelbottom=True)
    x, y = (np.concatenate([np.append(curve_of(run)[i], np.nan) for run in runs]) for i in (0, 1))
    for axes, name in zip(panels, names, strict=False):
        axes.set_title(name, color="black")
        axes.plot(x, y, color=style.FAINT, linewidth=0.5, zorder=0, **look_of_others)
    places = [Place(axes, style.line(0), None) for axes in panels[: len(names)]]
    return groups, picture, places, f"{caption}; grey: all others"


def label_panels(picture: Figure, places: Sequence[Place], x: str, y: str) -> None:
    """Name the axes, y once for all panels, and let them begin at 0."""
    first = places[0].axes
    first.set_xlim(left=0)
    first.set_ylim(bottom=0)
    for place in places[-COLUMNS:]:
        place.axes.set_xlabel(x)
    if len(places) <= ONE_PANEL:
        first.set_ylabel(y)
    else:
        picture.supylabel(y, fontsize=8)
