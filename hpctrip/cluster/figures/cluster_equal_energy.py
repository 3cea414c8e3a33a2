"""Completion times over PowerFlow's, at equal energy.

TABLE.csv is written by `benchmarks/cluster_claim.py` of the source tree. Each panel is one way of accounting: which
scheduler switches nodes off, and whether hosts count. Each mark is a baseline at a load: its average job completion
time divided by that of PowerFlow, which needs no more energy. To the right of the line PowerFlow is faster.
"""

from __future__ import annotations

from hpctrip.base.frames import pd
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import csv_table

NUMBERS = ("load", "jct_s", "kwh", "powerflow_jct_s", "powerflow_kwh", "ratio")
TEXTS = ("account", "baseline")


@figure(csv_table(texts=TEXTS, numbers=NUMBERS))
def plot(table: pd.DataFrame) -> Drawing:
    """Draw one panel for each account. `table`: the rows of the benchmark."""
    accounts, baselines = (list(dict.fromkeys(table[name])) for name in TEXTS)
    loads = sorted({*table["load"]})
    picture = style.figure(1.5 + 0.22 * len(baselines), style.PAGE_INCHES)
    panels = picture.subplots(1, len(accounts), squeeze=False, sharey=True, sharex=True)[0]
    for axes, account in zip(panels, accounts, strict=True):
        of_account = table[table["account"] == account]
        for i, load in enumerate(loads):
            rows = of_account[of_account["load"] == load]
            place = [baselines.index(name) for name in rows["baseline"]]
            look = style.line(i) | {"linestyle": "", "marker": style.MARKS[i % len(style.MARKS)]}
            axes.plot(rows["ratio"], place, markersize=4, label=f"load {load:g}", **look)
        line = {"color": style.FAINT, "linewidth": 2, "label": "as fast as PowerFlow; to the right: slower"}
        axes.axvline(1.0, zorder=0, **line)
        axes.set(xlabel="Average completion time\nover PowerFlow's", ylim=(len(baselines) - 0.5, -0.5))
        axes.set_title(account, fontsize="small")
        style.grid(axes, "x")
    panels[0].set_yticks(range(len(baselines)), baselines)
    title = "Simulated, one run a mark, at the same energy as PowerFlow; a panel for each account"
    style.finish(picture, title)
    cells = []
    for row in table.itertuples(index=False):
        hours = f"{row.jct_s / HOUR_S:.2f}", f"{row.powerflow_jct_s / HOUR_S:.2f}"
        energies = f"{row.kwh:.1f}", f"{row.powerflow_kwh:.1f}"
        cells.append((f"{row.load:g}", row.account, row.baseline, *hours, *energies, f"{row.ratio:.2f}"))
    head = ("load", "account", "baseline", "JCT h", "PowerFlow h", "kWh", "PowerFlow kWh", "ratio")
    return Drawing(picture, table, aligned(head, cells))
