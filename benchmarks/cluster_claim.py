"""The claim of PowerFlow's abstract as a table: average job completion time at equal energy, baseline over PowerFlow.

    python benchmarks/cluster_claim.py SCENARIO.toml [-o KEY=VALUE]... [--loads 1 2 3] [--baselines fifo tiresias ...]
        [--accounts off+hosts always-on+hosts off always-on] [--out TABLE.csv]

Every baseline is simulated; then PowerFlow's eta is searched for the most energy that is no more than the baseline's.
A ratio above 1: PowerFlow's jobs are done sooner. The axes are the load, whether nodes without jobs are switched off,
and whether the energy of hosts and idle GPUs is counted. `fifo@least-energy` is FIFO at the frequencies of least
energy. Nothing is tuned: PowerFlow has its defaults.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from pathlib import Path

from hpctrip.app.cluster.given import read_cluster_input
from hpctrip.cluster.equal_energy import counted_j, matched
from hpctrip.cluster.scenario import ClusterScenario

ACCOUNTS = {
    "off+hosts": (True, True),
    "always-on+hosts": (False, True),
    "off": (True, False),
    "always-on": (False, False),
}
"""{name: (nodes without jobs are switched off, hosts and idle GPUs are counted)}."""
BASELINES = [
    "fifo",
    "srtf",
    "tiresias",
    "tiresias@least-energy",
    "optimus",
    "elasticflow-like",
    "pollux-greedy",
]


def main() -> None:
    """Simulate, print a line for each cell, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 2.0, 3.0])
    parser.add_argument("--accounts", nargs="+", choices=ACCOUNTS, default=list(ACCOUNTS))
    parser.add_argument("--baselines", nargs="+", default=BASELINES)
    parser.add_argument("--precision", type=float, default=0.03, help="relative, of eta")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    heads = [f"{name:>{form[:1]}}" for name, form in zip(_HEADS, _FORMS.values(), strict=True)]
    print(f"load  {'account':16} {'baseline':24} {' '.join(heads)}")
    for load, account, baseline in itertools.product(given.loads, given.accounts, given.baselines):
        row = compared(given, load, account, baseline)
        rows.append(row)
        numbers = [f"{row[name]:{form}}" for name, form in _FORMS.items()]
        print(f"{load:4g}  {account:16} {baseline:24} {' '.join(numbers)}", flush=True)
    if given.out:
        with open(given.out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


_FORMS = {
    "jct_s": "9.0f",
    "kwh": "9.1f",
    "eta": "6.3f",
    "powerflow_jct_s": "9.0f",
    "powerflow_kwh": "9.1f",
    "ratio": "6.2f",
}


_HEADS = ("JCT s", "kWh", "eta", "PF JCT s", "PF kWh", "ratio")


def compared(given: argparse.Namespace, load: float, account: str, baseline: str) -> dict[str, float | str]:
    """One cell: a baseline, and PowerFlow at its energy. NaN where PowerFlow needs more at the lowest eta."""
    is_off, hosts = ACCOUNTS[account]
    kind, _, frequency = baseline.partition("@")
    lines = [
        *given.overrides,
        f"jobs.load={load}",
        f"cluster.off_after_s={'300' if is_off else 'never'}",
        f"scheduler.kind={kind}",
        f"frequency.kind={frequency or 'highest'}",
    ]
    scenario: ClusterScenario = read_cluster_input([given.scenario], lines).scenario
    result = scenario.simulator().run()
    match = matched(scenario, counted_j(result, hosts), hosts, given.precision)
    jct_s = match.result.mean_jct_s if match else float("nan")
    return {
        "load": load,
        "account": account,
        "baseline": baseline,
        "jct_s": result.mean_jct_s,
        "kwh": counted_j(result, hosts) / 3.6e6,
        "eta": match.eta if match else float("nan"),
        "powerflow_jct_s": jct_s,
        "powerflow_kwh": match.energy_j / 3.6e6 if match else float("nan"),
        "ratio": result.mean_jct_s / jct_s,
    }


if __name__ == "__main__":
    main()
