"""The claim of PowerFlow's abstract as a table: average job completion time at equal energy, baseline over PowerFlow.

    python benchmarks/cluster_claim.py SCENARIO.toml --out TABLE.csv [-o KEY=VALUE]... [--loads 1 2 3]
        [--baselines fifo tiresias ...] [--accounts off+hosts always-on+hosts ...]

Every baseline is simulated, and PowerFlow with many etas; of those that need no more energy than the baseline, the one
with the least average completion time is taken. A ratio above 1: PowerFlow's jobs are done sooner. Where it needs more
with every eta, nan is printed and the table has no row. The axes are the load, whether nodes without jobs are switched
off, and whether the energy of hosts and idle GPUs is counted. Rows are added to TABLE.csv as they come; those that it
has already are not made again.
`hpctrip plot cluster_equal_energy` draws the table. Nothing is tuned: PowerFlow has its defaults.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from hpctrip.base.units import J_PER_KWH
from hpctrip.cluster.equal_energy import Front, counted_j
from hpctrip.cluster.rows import Result
from hpctrip.cluster.run import read_cluster_input
from hpctrip.cluster.scenario import ClusterScenario

ACCOUNTS = {
    "off+hosts": (True, True),
    "always-on+hosts": (False, True),
    "off": (True, False),
    "always-on": (False, False),
}
"""{name: (nodes without jobs are switched off, hosts and idle GPUs are counted)}."""
KEYS = {
    "fifo+backfill": ["scheduler.kind=fifo", "scheduler.backfill=true"],
    "tiresias@least-energy": ["scheduler.kind=tiresias", "frequency.kind=least-energy"],
}
"""{baseline: its settings}; the name of any other baseline is its scheduler's."""
BASELINES = [
    "fifo",
    "fifo+backfill",
    "easy-backfill",
    "srtf",
    "tiresias",
    "tiresias@least-energy",
    "optimus",
    "elasticflow-like",
    "pollux-greedy",
]


def main() -> None:
    """Simulate, print a line for each cell, and add it to the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 2.0, 3.0])
    parser.add_argument("--accounts", nargs="+", choices=ACCOUNTS, default=list(ACCOUNTS))
    parser.add_argument("--baselines", nargs="+", default=BASELINES)
    parser.add_argument("--precision", type=float, default=0.03, help="relative, of eta")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    heads = [f"{head:>{shape[:1]}}" for head, shape in NUMBERS.values()]
    print(f"load  {'account':16} {'baseline':24} {' '.join(heads)}")
    for row in table(options, done(options.out)):
        if not math.isnan(row["ratio"]):
            add_rows(options.out, [row])
        numbers = [f"{row[name]:{shape}}" for name, (_, shape) in NUMBERS.items()]
        print(f"{row['load']:4g}  {row['account']:16} {row['baseline']:24} {' '.join(numbers)}", flush=True)


NUMBERS = {
    "jct_s": ("JCT s", "9.0f"),
    "kwh": ("kWh", "9.1f"),
    "eta": ("eta", "6.3f"),
    "powerflow_jct_s": ("PF JCT s", "9.0f"),
    "powerflow_kwh": ("PF kWh", "9.1f"),
    "ratio": ("ratio", "6.2f"),
}
"""{column: (head, format)} of the numbers of a row."""
CELL = ["load", "account", "baseline"]
Row = dict[str, float | str]


def done(path: Path | None) -> set[tuple[float, str, str]]:
    """The cells that a table has already."""
    return (
        set(pd.read_csv(path)[CELL].itertuples(index=False, name=None)) if path and path.exists() else set()
    )


def add_rows(path: Path | None, rows: Iterable[Row]) -> None:
    """Add rows to a table, which is begun if it does not exist."""
    if path:
        pd.DataFrame(rows).to_csv(path, mode="a", header=not path.exists(), index=False)


def table(options: argparse.Namespace, done: set[tuple[float, str, str]]) -> Iterator[Row]:
    """The cells that are not done. A baseline is simulated once for both ways to count, PowerFlow's front once for all
    baselines."""
    for load in options.loads:
        simulated = cache(
            lambda off, baseline, at=load: scenario(options, at, off, baseline).simulator().run()
        )
        for account in options.accounts:
            is_off, hosts = ACCOUNTS[account]
            front = Front(scenario(options, load, is_off, "powerflow"), hosts, options.precision)
            for baseline in options.baselines:
                if (load, account, baseline) not in done:
                    cell = compared(front, simulated(is_off, baseline), hosts)
                    yield {"load": load, "account": account, "baseline": baseline} | cell


def scenario(options: argparse.Namespace, load: float, is_off: bool, baseline: str) -> ClusterScenario:
    """The cluster under a baseline."""
    chosen = [
        f"jobs.load={load}",
        f"cluster.off_after_s={'300' if is_off else 'never'}",
        *KEYS.get(baseline, [f"scheduler.kind={baseline}"]),
    ]
    return read_cluster_input([options.scenario], [*options.overrides, *chosen]).scenario


def compared(front: Front, result: Result, hosts: bool) -> Row:
    """One cell: a baseline, and PowerFlow at its energy. NaN where PowerFlow needs more with every eta."""
    target_j = counted_j(result, hosts)
    match = front.best(target_j)
    jct_s = match.result.mean_jct_s if match else float("nan")
    return {
        "jct_s": result.mean_jct_s,
        "kwh": target_j / J_PER_KWH,
        "eta": match.eta if match else float("nan"),
        "powerflow_jct_s": jct_s,
        "powerflow_kwh": match.energy_j / J_PER_KWH if match else float("nan"),
        "ratio": result.mean_jct_s / jct_s,
    }


if __name__ == "__main__":
    main()
