"""Bandwidth and delay against distance.

The simulated WAN of a run. Points are its sites, lines the laws of its input (bandwidth law, Eq. 3) where the sites
follow them. The dotted line stands at 1,000 miles, up to which the default law has full bandwidth.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hpctrip.base.units import GB, MILE_M
from hpctrip.figures.common import reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import ONE_RUN
from hpctrip.record.reader import Run
from hpctrip.sim.network import Network

NEAR_MILES = 1000


@figure(ONE_RUN)
def plot(run: Run) -> Drawing:
    """The network of one run."""
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
    count = f"{reading.counted(len(sites), 'site')}, {near} within {NEAR_MILES:,} mi"
    style.heading(picture, f"Simulated WAN: {count}; {update}")
    style.legend_below(picture)

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
    try:
        network = Network.model_validate(run.input.get("network", {}))
    except ValueError:
        return None
    auto = network.update_bytes == "auto"
    down_bytes = 4.0 * run.meta["num_params"] if auto else network.update_bytes

    def of(distance_m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bandwidth_bps = network.bandwidth_bps(distance_m)
        return bandwidth_bps, network.comm_s(distance_m, bandwidth_bps, up_bytes, down_bytes)

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
