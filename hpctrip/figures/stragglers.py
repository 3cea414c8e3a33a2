"""How often and how long all waited for each site.

Left: in how many rounds the site finished last, out of those that it took part in. Right: the simulated hours of those
rounds at that site, computing and communicating. Sites stand by their hours, the longest first; the rest is counted.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpctrip.base.units import HOUR_S, MILE_M
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import ONE_RUN
from hpctrip.record.reader import Run

MOST = 25
"""So many sites are drawn; the table has all."""


@figure(ONE_RUN)
def plot(run: Run) -> Drawing:
    """The stragglers of one run."""
    table = by_site(run)
    stragglers = table[table["rounds_straggler"] > 0]
    shown, num_never = stragglers.head(MOST), len(table) - len(stragglers)
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
    look = {"color": style.ORANGE, "hatch": "////", "edgecolor": "white", "linewidth": 0}
    long.barh(places, shown["comm_h"], 0.7, left=shown["compute_h"], label="communicating", **look)
    long.set_xlabel(f"Simulated hours that it took as the straggler, of {total_h:.3g}")
    for axes in (often, long):
        axes.tick_params(axis="y", length=0)
        style.grid(axes, "x")
    num_more = len(stragglers) - len(shown)
    rest = f"{num_more} more not drawn; " if num_more else ""
    label = grouping.grouped([run])[0].label
    subject = f"{label}, seed {run.meta['seed']}, n = {reading.counted(all_rounds, 'round')}"
    never = f"{rest}{reading.counted(num_never, 'site')} never the straggler"
    style.heading(picture, f"{subject}; {reading.provenance([run])}\n{never}")
    style.legend_below(picture)

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
