"""Figure 3: power utilisation of single power domains (PDUs) over time.

    python postprocess/fig03_power_over_time.py TRACES [--domains cella_pdu6 cellb_pdu11] [--days 7] [--out fig03.png]

TRACES is a folder of cell*.csv.gz files as Google publishes them (PowerData2019), one such file, or a quoted pattern.
Without `--domains`, four are drawn, of as many cells as there are.
"""

from __future__ import annotations

import sys

import pandas as pd
from common import commandline, reading, style

from hpctrip.base.units import HOUR_S
from hpctrip.record.reader import InputError, read_traces

DAY_S = 24 * HOUR_S
MOST = len(style.CYCLE)


@commandline.script
def main(argv=None) -> None:
    """Draw one line for each domain."""
    made = commandline.trace_parser(__doc__, "fig03_power_over_time.png")
    made.add_argument("--domains", nargs="+", metavar="DOMAIN", help=f"domains to draw, {MOST} at most")
    made.add_argument(
        "--days", type=float, default=7, help="days to draw, from the start (default: %(default)g)"
    )
    args = made.parse_args(argv)
    traces = read_traces(args.traces, args.column, args.flags)
    if not args.days > 0:
        raise InputError("--days", f"{args.days:g} is not above 0")
    known = list(traces["domain"].unique())
    chosen = args.domains or in_turn(traces)[:4]
    for name in chosen:
        if name not in known:
            raise InputError("--domains", f"no domain {name!r}", f"the traces hold {', '.join(known)}")
    if len(chosen) > MOST:
        raise InputError("--domains", f"{len(chosen)} lines cannot be told apart", f"name {MOST} at most")
    drawn = traces[traces["domain"].isin(chosen) & (traces["time_s"] < args.days * DAY_S)]

    figure = style.figure(2.1)
    axes = figure.subplots()
    rows = []
    for name in chosen:
        line = drawn[drawn["domain"] == name]
        used = 100 * line["utilisation"]
        axes.plot(line["time_s"] / DAY_S, used, linewidth=0.7, label=name)
        numbers = used.mean(), used.min(), used.max(), used.diff().abs().max()
        rows.append((name, str(len(line)), *(f"{number:.1f}" for number in numbers)))
    commandline.print_table(("domain", "samples", "mean %", "min %", "max %", "largest step %"), rows)
    axes.set_xlabel("Time (days)")
    axes.set_ylabel(f"{args.column.capitalize()} power\nutilisation (%)")
    axes.set_xlim(left=0)
    axes.set_title(reading.trace_title(drawn))
    style.grid(axes, "y")
    style.legend_below(figure)
    commandline.save(figure, args.out)


def in_turn(traces: pd.DataFrame) -> list[str]:
    """All domains: the first of every cell, then the second of every cell, and so on."""
    domains = traces.drop_duplicates("domain")
    place = domains.groupby("cell").cumcount()
    return list(domains["domain"].iloc[place.argsort(kind="stable")])


if __name__ == "__main__":
    sys.exit(main())
