"""Figures of the sites of one run: their network, what they did over time, how long all others waited for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.base.text import aligned, counted, printable
from hpctrip.base.units import GB, HOUR_S, MILE_M
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import ONE_RUN
from hpctrip.record.reader import Run
from hpctrip.record.site_report import (
    RARE,
    STRAGGLER,
    bars_of,
    by_site,
    seconds_of,
    spent_in,
    table_of,
    unit_in,
)
from hpctrip.sim.network.distance import DistanceNetwork

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

NEAR_MILES = 1000
CORNERS = ((5, 4), (-5, 4), (5, -9), (-5, -9))
"""Points from a site's place on the map to its name, to the right or the left."""
MOST_ROUNDS, MOST_SITES = 30, 60
"""Largest numbers of rounds and of sites in a legible timeline."""
DOING = {
    "queued": {"color": "white", "hatch": "....", "edgecolor": style.QUIET, "linewidth": 0},
    "computing": {"color": style.BLUE},
    "sending": {"color": style.ORANGE, "hatch": "////", "edgecolor": "white", "linewidth": 0},
    "waiting": {"color": style.FAINT},
    "idle": {"facecolor": "white", "edgecolor": style.FAINT, "linewidth": 0.6},
    "given up": {"color": style.VERMILLION, "hatch": "xxxx", "edgecolor": "white", "linewidth": 0},
    "away": style.HATCHED,
}
"""{what a site does: the look of its bar}."""


@figure(ONE_RUN)
def network(run: Run) -> Drawing:
    """Bandwidth and delay against distance.

    The simulated WAN of a run. Points are its sites, lines the laws of its input (bandwidth law, Eq. 3) where the sites
    follow them. The dotted line stands at 1,000 miles, up to which the default law has full bandwidth.
    """
    sites = run.sites.sort_values("distance_m", kind="stable")
    miles, gbit_s, comm_s = sites["distance_m"] / MILE_M, sites["bandwidth_bps"] / 1e9, sites["comm_s"]
    near = int((miles <= NEAR_MILES).sum())

    update = f"update of {run.meta['update_bytes'] / GB:.3g} GB"
    picture = style.figure(2.6)
    left = picture.subplots()
    right = left.twinx()
    look = {"markersize": 3, "linestyle": "none", "clip_on": False, "markerfacecolor": "white"}
    left.plot(miles, gbit_s, "o", color=style.BLUE, label="bandwidth", **look)
    right.plot(miles, comm_s, "^", color=style.VERMILLION, label="delay", **look)
    if (curves := law(run)) is not None:
        at, bandwidth, delay = curves
        left.plot(at, bandwidth, "-", color=style.BLUE, linewidth=0.9, label="its law")
        right.plot(at, delay, "--", color=style.VERMILLION, linewidth=0.9, label="Eq. 3")
    right.axvline(NEAR_MILES, color=style.GREY, linestyle=":", linewidth=0.9, label="1,000 miles")
    left.set_xlabel("Distance to the aggregator (miles)")
    left.set_xlim(0, 1.04 * max(miles.max(), NEAR_MILES))
    coloured(left, "left", "Simulated\nbandwidth (Gbit/s)", style.BLUE)
    coloured(right, "right", "Simulated delay (s)", style.VERMILLION)
    count = f"{counted(len(sites), 'site')}, {near} within {NEAR_MILES:,} mi"
    style.finish(picture, f"Simulated WAN: {count}; {update}")

    columns = {"distance_miles": miles, "bandwidth_gbit_s": gbit_s, "comm_s": comm_s}
    names = {"name": sites["name"]} if "name" in sites else {}
    table = pd.DataFrame({"site": sites["site"], **names, **columns})
    edges = np.unique(np.linspace(0, len(sites) - 1, 6).round().astype(int))
    rows = [(f"{at:.0f}", f"{gbit:.3g}", f"{s:.3g}") for at, gbit, s in table[[*columns]].to_numpy()[edges]]
    lines = aligned(("miles", "Gbit/s", "delay s"), rows)
    lines.append(f"sites within {NEAR_MILES} miles: {near} of {len(sites)}; {update}")
    return Drawing(picture, table, lines)


def law(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(miles, Gbit/s, delay in s), [200] each, as the run's input has them; None where its sites do not follow it
    (those of a CSV may have bandwidths of their own)."""
    sites, up_bytes = run.sites, run.meta["update_bytes"]
    keys = dict(run.input.get("network", {}))
    if keys.pop("kind", DistanceNetwork.kind) != DistanceNetwork.kind:
        return None
    try:
        wan = DistanceNetwork.model_validate(keys)
    except ValueError:
        return None
    auto = wan.update_bytes == "auto"
    down_bytes = 4.0 * (run.meta["num_params"] + run.meta["num_buffers"]) if auto else wan.update_bytes

    def of(distance_m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        links = wan.links(distance_m, {})
        return links.bandwidth_bps, links.transfer_s(slice(None), 0.0, up_bytes, down_bytes).alone_s

    recorded = sites["bandwidth_bps"], sites["comm_s"]
    if not np.allclose(recorded, of(sites["distance_m"]), rtol=1e-6, atol=0):
        return None
    farthest = max(sites["distance_m"].max(), NEAR_MILES * MILE_M)
    distance_m = np.linspace(max(sites["distance_m"].min(), farthest / 1000), farthest, 200)
    bandwidth_bps, comm_s = of(distance_m)
    return distance_m / MILE_M, bandwidth_bps / 1e9, comm_s


def coloured(axes: Axes, side: str, label: str, colour: str) -> None:
    """A y axis in the colour of its points."""
    axes.set_ylabel(label, color=colour)
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="y", colors=colour)
    axes.spines[side].set(color=colour, visible=True)


def described(run: Run) -> str:
    """The run in a few words, for the top of a picture."""
    label, rounds = grouping.grouped([run])[0].label, counted(len(run.rounds), "round")
    return f"{label}, seed {run.meta['seed']}, n = {rounds}; {reading.provenance([run])}"


@figure(ONE_RUN)
def timeline(run: Run) -> Drawing:
    """Computing, sending and waiting of each site over time.

    A site may wait in a queue; it computes and sends its update; then it waits until the end of the round that takes
    the update, or until it starts again. Idle: it is provisioned by its window, and has no work. Given up: the whole
    time that it spent on an update that was late, lost or diverged. Away: it was to start, and was out. Thin lines are
    ends of rounds. At most the last 30 rounds are drawn, of the 60 sites that were in most of them.
    """
    bars, rounds = bars_of(run), run.rounds[["round", "clock_start_s", "clock_s"]].tail(MOST_ROUNDS)
    ends = pd.DataFrame({"round": rounds["round"], "site": "", "doing": "round"})
    ends["name"] = ""
    ends["start_h"], ends["end_h"] = rounds["clock_start_s"] / HOUR_S, rounds["clock_s"] / HOUR_S
    number, from_h = ends["round"].iloc[0], ends["start_h"].iloc[0]
    taking_part = run.flying[run.flying["round"] >= number].groupby("site").size()
    sites = taking_part.nlargest(MOST_SITES).index.sort_values()
    bars = bars[(bars["end_h"] > from_h) & bars["site"].isin(sites)]
    bars = bars.assign(start_h=bars["start_h"].clip(lower=from_h))
    names = [printable(run.site_names[site], 24) for site in sites]

    picture = style.figure(1.2 + 0.15 * len(sites), style.PAGE_INCHES)
    axes = picture.subplots()
    for doing, look in DOING.items():
        if len(part := bars[bars["doing"] == doing]):
            places, hours = sites.get_indexer(part["site"]), part["end_h"] - part["start_h"]
            axes.barh(places, hours, 0.8, left=part["start_h"], label=doing, **look)
    for hours in ends["end_h"]:
        axes.axvline(hours, color="black", linewidth=0.4)
    axes.set_yticks(range(len(sites)), names)
    axes.set(ylim=(len(sites) - 0.5, -0.5), xlim=(from_h, hours), xlabel="Simulated time (hours)")
    axes.tick_params(axis="y", length=0)
    which = "all" if len(sites) == len(taking_part) else f"the {len(sites)} in most of them"
    drawn = f"rounds {number} to {number + len(ends) - 1} of {len(run.rounds)}; "
    drawn += f"of {len(run.sites)} sites {len(taking_part)} took part, {which} drawn"
    style.finish(picture, f"{described(run)}\n{drawn}; thin lines: ends of rounds")

    hours = (bars["end_h"] - bars["start_h"]).groupby([bars["site"], bars["doing"]]).sum().unstack()
    doings = [doing for doing in DOING if doing not in RARE or doing in hours]
    hours = hours.reindex(sites, columns=doings).fillna(0.0)
    rows = [(name, *(f"{h:.3g}" for h in row)) for name, row in zip(names, hours.to_numpy(), strict=True)]
    lines = [*aligned(("site", *(f"{doing} h" for doing in doings)), rows), drawn]
    bars.insert(1, "name", bars["site"].map(dict(enumerate(run.site_names))))
    return Drawing(picture, pd.concat([bars.astype({"site": str}), ends]), lines)


@figure(ONE_RUN)
def sites(run: Run) -> Drawing:
    """Participation, hours and spending of each site, with a map.

    From left to right: the share of the rounds in which a site was in the cohort, and in which it finished last; its
    simulated hours by activity; those of the rounds in which it finished last; energy, carbon and cost as far as they
    are recorded. Of more than 60 sites, those that took part most are drawn. Where positions are known there is a map,
    on which the area of a circle is the site's share of the rounds.
    """
    report = by_site(run)
    most = report["participation_fraction"].nlargest(MOST_SITES).index.sort_values()
    shown, places = report.loc[most], np.arange(len(most))
    positions = shown[[name for name in ("longitude", "latitude") if name in shown]].dropna()
    has_map = positions.shape[1] == 2 and len(positions) > 0
    spent, heights = spent_in(report), [1.3 + 0.16 * len(shown), 3.2]

    picture = style.figure(sum(heights[: 1 + has_map]), style.PAGE_INCHES)
    names = ["share", "hours", "straggler", *spent]
    panels = picture.subplot_mosaic(
        [names, ["map"] * len(names)][: 1 + has_map], height_ratios=heights[: 1 + has_map]
    )
    look = {
        "in the cohort": ("participation_fraction", "#E5E5E5"),
        "straggler": ("straggler_fraction", style.QUIET),
    }
    for label, (name, colour) in look.items():
        panels["share"].barh(places, 100 * shown[name], 0.7, color=colour, label=label)
    stacked(panels["hours"], shown, {seconds_of(doing): (doing, DOING[doing]) for doing in [*DOING][:-1]})
    parts = dict(
        zip(STRAGGLER, (("computing", DOING["computing"]), ("sending", DOING["sending"])), strict=True)
    )
    stacked(panels["straggler"], shown, parts)
    heads = ["Share of the\nrounds (%)", "Simulated\nhours", "Hours as\nstraggler"]
    for what, quantity in spent.items():
        factor, unit = unit_in(run, report, quantity)
        panels[what].barh(places, shown[quantity.total] / factor, 0.7, color=style.GREEN)
        heads.append(f"{what[0].upper()}{what[1:]}\n({unit})")
    for name, head in zip(names, heads, strict=True):
        labels = [printable(run.site_names[site], 24) for site in most] if name == "share" else []
        panels[name].set_yticks(places, labels)
        panels[name].set(xlabel=head, ylim=(len(shown) - 0.5, -0.5))
        panels[name].tick_params(axis="y", length=0)
        style.grid(panels[name], "x")
    if has_map:
        world_map(panels["map"], run, positions, shown["participation_fraction"])
    rest = (
        "" if len(shown) == len(report) else f"; the {len(shown)} of {len(report)} sites that took part most"
    )
    style.finish(picture, f"{described(run)}{rest}")
    return Drawing(picture, report, aligned(*table_of(run, report)))


def stacked(axes: Axes, shown: pd.DataFrame, parts: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
    """A bar of hours for each row, of the columns of `parts`, {column in s: (label, look)}, that are not all 0."""
    left_h = np.zeros(len(shown))
    for name, (label, look) in parts.items():
        if shown[name].any():
            axes.barh(np.arange(len(shown)), shown[name] / HOUR_S, 0.7, left=left_h, label=label, **look)
            left_h = left_h + shown[name].to_numpy() / HOUR_S


def world_map(axes: Axes, run: Run, positions: pd.DataFrame, share: pd.Series) -> None:
    """Sites at their longitude and latitude [n], with circles by their share of the rounds, and the aggregator."""
    style.grid(axes, "both")
    known = share[positions.index]
    look = {"color": style.BLUE, "alpha": 0.5, "linewidth": 0, "label": "share of the rounds"}
    axes.scatter(*positions.to_numpy().T, 8 + 160 * known, **look)
    if aggregator := run.setting("sites.aggregator"):
        axes.plot(
            *aggregator[::-1], "*", color=style.VERMILLION, markersize=8, label="aggregator", linestyle="none"
        )
    axes.margins(0.12)
    axes.set(xlabel="Longitude (degrees)", ylabel="Latitude (degrees)")
    axes.figure.draw_without_rendering()  # where things lie
    boxes: list[Bbox] = []
    for site in known.sort_values(ascending=False, kind="stable").index:
        at, name = positions.loc[site].to_numpy(), printable(run.site_names[site], 16)
        for offset in CORNERS:
            side = "left" if offset[0] > 0 else "right"
            text = axes.annotate(name, at, offset, textcoords="offset points", fontsize=6, ha=side)
            box = text.get_window_extent()
            if not box.count_overlaps(boxes):
                boxes.append(box)
                break
            text.remove()  # one name would cover the other
