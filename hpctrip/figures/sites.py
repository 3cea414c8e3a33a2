"""Figures of the sites of one run: their network, what they did over time, how long all others waited for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.base.text import aligned, counted, printable
from hpctrip.base.units import GB, HOUR_S, MILE_M
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import ONE_RUN
from hpctrip.record.reader import Run, Status
from hpctrip.sim.network import DistanceNetwork

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEAR_MILES = 1000
MOST_STRAGGLERS = 25
"""Largest number of sites that are drawn; the table has all."""
MOST_ROUNDS, MOST_SITES = 30, 60
"""Largest numbers of rounds and of sites in a legible timeline."""
DOING = {
    "computing": {"color": style.BLUE},
    "sending": {"color": style.ORANGE, "hatch": "////", "edgecolor": "white", "linewidth": 0},
    "waiting": {"color": style.FAINT},
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
    table = pd.DataFrame({"site": sites["site"], **columns})
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


@figure(ONE_RUN)
def stragglers(run: Run) -> Drawing:
    """How often and how long rounds waited for each site.

    Left: in how many rounds the site finished last, out of those that it took part in. Right: the simulated hours of
    those rounds at that site, computing and communicating. Sites stand by their hours, the longest first; the rest is
    counted.
    """
    table = by_site(run)
    stragglers = table[table["rounds_straggler"] > 0]
    shown, num_never = stragglers.head(MOST_STRAGGLERS), len(table) - len(stragglers)
    all_rounds, total_h = len(run.rounds), table["hours"].sum()

    picture = style.figure(1.3 + 0.17 * len(shown), style.PAGE_INCHES)
    often, long = picture.subplots(1, 2, sharey=True)
    places = np.arange(len(shown))
    often.barh(places, shown["rounds_in_cohort"], 0.7, color="#E5E5E5", label="in the cohort")
    often.barh(places, shown["rounds_straggler"], 0.7, color=style.QUIET, label="the straggler")
    often.set_yticks(places, [f"site {s.site}, {s.distance_miles:,.0f} mi" for s in shown.itertuples()])
    often.set_ylim(len(shown) - 0.5, -0.5)
    often.set_xlabel(f"Rounds, of {all_rounds}")
    style.whole_numbers(often, "x")
    long.barh(places, shown["compute_h"], 0.7, color=style.BLUE, label="computing")
    look = {"left": shown["compute_h"], "label": "communicating"} | DOING["sending"]
    long.barh(places, shown["comm_h"], 0.7, **look)
    long.set_xlabel(f"Simulated hours that it took as the straggler, of {total_h:.3g}")
    for axes in (often, long):
        axes.tick_params(axis="y", length=0)
        style.grid(axes, "x")
    num_more = len(stragglers) - len(shown)
    rest = f"{num_more} more not drawn; " if num_more else ""
    never = f"{rest}{counted(num_never, 'site')} never the straggler"
    style.finish(picture, f"{described(run)}\n{never}")

    rows = []
    for s in shown.itertuples():
        counts = str(s.rounds_in_cohort), str(s.rounds_straggler), f"{s.rounds_straggler / all_rounds:.0%}"
        hours = f"{s.compute_h:.3g}", f"{s.comm_h:.3g}"
        rows.append((str(s.site), f"{s.distance_miles:.0f}", *counts, *hours))
    head = ("site", "miles", "rounds in the cohort", "straggler", "of all rounds", "compute h", "comm h")
    lines = [*aligned(head, rows), f"{rest}{num_never} of {len(table)} sites were never the straggler"]
    return Drawing(picture, table, lines)


def by_site(run: Run) -> pd.DataFrame:
    """One row a site [N], the longest straggler first."""
    sites = run.sites[["site", "distance_m"]].set_index("site")
    last = run.rounds.groupby("straggler")
    table = pd.DataFrame(
        {
            "distance_miles": sites["distance_m"] / MILE_M,
            "rounds_in_cohort": run.cohorts["site"].value_counts(),
            "rounds_straggler": last.size(),
            "compute_h": last["straggler_compute_s"].sum() / HOUR_S,
            "comm_h": last["straggler_comm_s"].sum() / HOUR_S,
        },
        index=sites.index,
    ).fillna(0)
    table = table.astype({"rounds_in_cohort": int, "rounds_straggler": int})
    table["hours"] = table["compute_h"] + table["comm_h"]
    return table.sort_values(["hours", "rounds_straggler"], ascending=False, kind="stable").reset_index()


def described(run: Run) -> str:
    """The run in a few words, for the top of a picture."""
    label, rounds = grouping.grouped([run])[0].label, counted(len(run.rounds), "round")
    return f"{label}, seed {run.meta['seed']}, n = {rounds}; {reading.provenance([run])}"


@figure(ONE_RUN)
def timeline(run: Run) -> Drawing:
    """Computing, sending and waiting of each site over time.

    A site computes and sends its update; then it waits until the end of the round that takes the update, or until it
    starts again. Given up: the whole time that it spent on an update that was late, lost or diverged. Away: it was to
    start, and was out. Thin lines are ends of rounds. At most the last 30 rounds are drawn, of the 60 sites that were
    in most of them.
    """
    bars, rounds = bars_of(run), run.rounds[["round", "clock_start_s", "clock_s"]].tail(MOST_ROUNDS)
    ends = pd.DataFrame({"round": rounds["round"], "site": "", "doing": "round"})
    ends["start_h"], ends["end_h"] = rounds["clock_start_s"] / HOUR_S, rounds["clock_s"] / HOUR_S
    number, from_h = ends["round"].iloc[0], ends["start_h"].iloc[0]
    taking_part = run.cohorts[run.cohorts["round"] >= number].groupby("site").size()
    sites = taking_part.nlargest(MOST_SITES).index.sort_values()
    bars = bars[(bars["end_h"] > from_h) & bars["site"].isin(sites)]
    bars = bars.assign(start_h=bars["start_h"].clip(lower=from_h))
    names = run.sites["name"] if "name" in run.sites else pd.Series("", run.sites.index)
    names = [printable(names.get(site, ""), 24) or f"site {site}" for site in sites]

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
    hours = hours.reindex(sites, columns=DOING).fillna(0.0)
    rows = [(name, *(f"{h:.3g}" for h in row)) for name, row in zip(names, hours.to_numpy(), strict=True)]
    lines = [*aligned(("site", *(f"{doing} h" for doing in DOING)), rows), drawn]
    return Drawing(picture, pd.concat([bars.astype({"site": str}), ends]), lines)


def bars_of(run: Run) -> pd.DataFrame:
    """The bars of the timeline, one row each: site, round (in which the flight started), doing (a key of DOING),
    start_h, end_h. Bars of less than a microsecond are rounding errors and are left out."""
    flights = run.flights.sort_values(["site", "start_s"])
    start_s, status = flights["start_s"], flights["status"]
    again_s = start_s.groupby(flights["site"]).shift(-1)
    free_s = np.fmin(flights["end_s"].fillna(run.rounds["clock_s"].iloc[-1]), again_s)
    computed_s, sent_s = np.fmin(flights["computed_s"], free_s), np.fmin(flights["sent_s"], free_s)
    used = status.isin([Status.ARRIVED, Status.UNDER_WAY])
    parts = {
        "computing": (used, start_s, computed_s),
        "sending": (used, computed_s, sent_s),
        "waiting": (used, sent_s, free_s),
        "given up": (~used & (status != Status.OUT), start_s, free_s),
        "away": (status == Status.OUT, start_s, free_s),
    }
    tables = []
    for doing, (those, from_s, until_s) in parts.items():
        times = {"doing": doing, "start_h": from_s / HOUR_S, "end_h": until_s / HOUR_S}
        tables.append(flights[["site", "round"]].assign(**times)[those & (until_s - from_s > 1e-6)])
    return pd.concat(tables, ignore_index=True)
