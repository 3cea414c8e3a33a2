"""Completion times against PowerFlow, at equal energy.

TABLE.csv is written by `benchmarks/cluster_claim.py` of the source tree. Each panel is one way of accounting: whether
nodes are switched off, and whether hosts count. Each line is a baseline: its average job completion time divided by
that of PowerFlow, which needs no more energy, against the load. Above the line at 1 PowerFlow is faster.
"""

from __future__ import annotations

from hpctrip.base.frames import pd
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import csv_table

NUMBERS = ("load", "jct_s", "kwh", "powerflow_jct_s", "powerflow_kwh", "ratio")
TEXTS = ("account", "baseline")
WORDS = {"off": "idle nodes switched off", "always-on": "nodes always on", "hosts": "energy of hosts counts"}
"""{part of the name of an account: the same in words}."""


@figure(csv_table(texts=TEXTS, numbers=NUMBERS))
def plot(table: pd.DataFrame) -> Drawing:
    """Draw one panel for each account. `table`: the rows of the benchmark."""
    from matplotlib.ticker import LogLocator, NullFormatter

    accounts, baselines = (list(dict.fromkeys(table[name])) for name in TEXTS)
    table = table.sort_values("load", kind="stable")
    picture = style.figure(3.4, style.PAGE_INCHES)
    panels = picture.subplots(1, len(accounts), squeeze=False, sharey=True, sharex=True)[0]
    for axes, account in zip(panels, accounts, strict=True):
        of_account = table[table["account"] == account]
        line = {"color": style.FAINT, "linewidth": 2, "label": "as fast as PowerFlow; above: slower"}
        axes.axhline(1.0, zorder=0, **line)
        for i, baseline in enumerate(baselines):
            rows = of_account[of_account["baseline"] == baseline]
            look = style.line(i) | style.point(i)
            axes.plot(rows["load"], rows["ratio"], markersize=4, label=baseline, **look)
        axes.set(xlabel="Arrivals of jobs (times those of the trace)", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(", ".join(WORDS.get(part, part) for part in account.split("+")))
        style.grid(axes, "both")
    panels[0].set_ylabel("Average completion time\nover PowerFlow's")
    title = "Simulated, one run a mark, at the same energy as PowerFlow"
    style.finish(picture, title)
    cells = []
    for row in table.itertuples(index=False):
        hours = f"{row.jct_s / HOUR_S:.2f}", f"{row.powerflow_jct_s / HOUR_S:.2f}"
        energies = f"{row.kwh:.1f}", f"{row.powerflow_kwh:.1f}"
        cells.append((f"{row.load:g}", row.account, row.baseline, *hours, *energies, f"{row.ratio:.2f}"))
    head = ("load", "account", "baseline", "JCT h", "PowerFlow h", "kWh", "PowerFlow kWh", "ratio")
    return Drawing(picture, table, aligned(head, cells))
