"""Figure 5: WAN bandwidth and communication delay (Eq. 3) of a run's sites against their distance.

python postprocess/fig05_network.py results/run.h5 [--out fig05.png]
"""

from __future__ import annotations

import sys

import numpy as np
from common import commandline, reading, style
from matplotlib.axes import Axes

from hpctrip.base.units import GB, MILE_M
from hpctrip.record.reader import InputError


@commandline.script
def main(argv=None) -> None:
    """Draw the network of one run."""
    args = commandline.run_parser(__doc__, "fig05_network.png").parse_args(argv)
    run, *others = reading.read_runs(args.runs)
    if others:
        raise InputError(
            " ".join(args.runs), f"{1 + len(others)} runs, each with sites of its own", "name one run"
        )
    sites = run.sites.sort_values("distance_m")
    miles, gbit_s, comm_s = sites["distance_m"] / MILE_M, sites["bandwidth_bps"] / 1e9, sites["comm_s"]

    update = f"update of {run.meta['update_bytes'] / GB:.3g} GB"
    figure = style.figure(2.3)
    left = figure.subplots()
    right = left.twinx()
    left.plot(miles, gbit_s, "o", color=style.BLUE, markersize=3, label="bandwidth")
    right.plot(miles, comm_s, "^", color=style.VERMILLION, markersize=3, label="delay")
    left.set_xlabel("Distance to the aggregator (miles)")
    coloured(left, "left", "Bandwidth (Gbit/s)", style.BLUE)
    coloured(right, "right", "Communication delay (s)", style.VERMILLION)
    left.set_title(f"{reading.counted(len(sites), 'site')}, {update}")
    style.legend_below(figure)

    edges = np.unique(np.linspace(0, len(sites) - 1, 6).round().astype(int))
    commandline.print_table(
        ("miles", "Gbit/s", "delay s"),
        [(f"{miles.iloc[i]:.0f}", f"{gbit_s.iloc[i]:.3g}", f"{comm_s.iloc[i]:.3g}") for i in edges],
    )
    print(f"sites within 1000 miles: {int((miles <= 1000).sum())} of {len(sites)}; {update}")
    commandline.save(figure, args.out)


def coloured(axes: Axes, side: str, label: str, colour: str) -> None:
    """A y axis in the colour of its points."""
    axes.set_ylabel(label, color=colour)
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="y", colors=colour)
    axes.spines[side].set(color=colour, visible=True)


if __name__ == "__main__":
    sys.exit(main())
