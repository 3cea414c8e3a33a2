"""Completion time against energy of a cluster: PowerFlow, and an elastic scheduler with capped clocks and fewer GPUs.

    python benchmarks/cluster_front.py SCENARIO.toml --out FRONT.csv [-o KEY=VALUE]... [--budget NAME] [--loads 1 2]
        [--accounts off+hosts always-on+hosts] [--scheduler elasticflow-like]

PowerFlow is simulated with many etas, and without one; the elastic scheduler with its clocks capped at a fraction x of
the highest (by `gpu.cap_w`), and with at most n GPUs for a job (`models.most_gpus`); both also with fewer nodes
(`cluster.num_nodes`). Under a budget of power or carbon there is also an elastic scheduler that hands out only the GPUs
that the power is enough for. Rows are added to FRONT.csv as they come; those that it has already are not made again.
`--budget` names the settings of `-o` in the rows. A row without jct_s left jobs undone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from cluster_claim import ACCOUNTS, add_rows

from hpctrip.base.units import J_PER_KWH
from hpctrip.cluster.equal_energy import HIGHEST, LOWEST
from hpctrip.cluster.run import read_cluster_input
from hpctrip.cluster.schedulers import SCHEDULERS, ClusterView, Plan
from hpctrip.cluster.schedulers.elastic import ElasticFlowLike
from hpctrip.sim.hardware.gpu_power import A100

ETAS = np.geomspace(LOWEST, HIGHEST, 16)
CLOCKS = (1.0, 0.9, 0.8, 0.7, 0.6)
MOST_GPUS = (64, 16, 8, 4, 2, 1)
"""Largest numbers of GPUs of a job."""
NODES = (0.75, 0.5)
"""Fractions of the nodes."""
ROW = ["load", "account", "budget", "scheduler", "setting"]


@SCHEDULERS.add
class WithinPower(ElasticFlowLike):
    """elasticflow-like with only as many GPUs as could compute at the highest clock within the power limit."""

    kind = "elasticflow-within-power"

    def plan(self, view: ClusterView) -> Plan:
        """The plan of elasticflow-like for a smaller cluster."""
        machine = view.machine
        gpu_w = view.speeds.power_w[:, 1, -1].max() + machine.host_w / machine.gpus_per_node
        num_gpus = int(np.clip(view.limit_w / gpu_w, 1, machine.num_gpus))
        smaller = machine.model_copy(update={"num_nodes": num_gpus, "gpus_per_node": 1})
        return super().plan(replace(view, machine=smaller))


def main() -> None:
    """Simulate, and add a row for each simulation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--budget", default="none")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0])
    parser.add_argument(
        "--accounts",
        nargs="+",
        default=["off+hosts"],
        choices=[name for name, (_, hosts) in ACCOUNTS.items() if hosts],
    )
    parser.add_argument("--scheduler", default="elasticflow-like")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    done = set()
    if options.out.exists():
        rows = pd.read_csv(options.out, keep_default_na=False)
        done = set(rows[ROW].itertuples(index=False, name=None))
    num_nodes = read_cluster_input([options.scenario]).scenario.cluster.num_nodes
    for load, account in product(options.loads, options.accounts):
        off_after_s = "300" if ACCOUNTS[account][0] else "never"
        for scheduler, setting, keys in settings(options.scheduler, num_nodes, options.budget != "none"):
            row = (load, account, options.budget, scheduler, setting)
            if row in done:
                continue
            chosen = [f"jobs.load={load}", f"cluster.off_after_s={off_after_s}", *options.overrides, *keys]
            result = read_cluster_input([options.scenario], chosen).scenario.simulator().run()
            carbon_kg = sum(interval.carbon_g for interval in result.intervals) / 1e3
            numbers = {"jct_s": result.mean_jct_s, "kwh": result.energy_j / J_PER_KWH, "carbon_kg": carbon_kg}
            add_rows(options.out, [dict(zip(ROW, row, strict=True)) | numbers])
            print(*row, *(f"{value:.1f}" for value in numbers.values()), flush=True)


def settings(elastic: str, num_nodes: int, is_limited: bool) -> Iterator[tuple[str, str, list[str]]]:
    """(scheduler, setting in words, its keys) of every simulation."""
    fewer = {
        f" nodes={round(share * num_nodes)}": [f"cluster.num_nodes={round(share * num_nodes)}"]
        for share in NODES
    }
    for (name, keys), eta in product(({"": []} | fewer).items(), ("none", *ETAS.tolist())):
        words = eta if eta == "none" else f"{eta:.3f}"
        yield "powerflow", f"eta={words}{name}", ["scheduler.kind=powerflow", f"scheduler.eta={eta}", *keys]
    kinds = [elastic, WithinPower.kind] if is_limited else [elastic]
    for kind, clock, most in product(kinds, CLOCKS, MOST_GPUS):
        keys = [f"scheduler.kind={kind}", *capped(clock), f"models.most_gpus={most}"]
        yield kind, f"x={clock:g} n={most}", keys
    for clock, (name, keys) in product(CLOCKS, fewer.items()):
        yield elastic, f"x={clock:g}{name}", [f"scheduler.kind={elastic}", *capped(clock), *keys]


def capped(clock: float) -> list[str]:
    """The key that caps the clocks at a fraction of the highest."""
    return [f"gpu.cap_w={float(A100().full_power_w(clock)) + 1e-6}"] if clock < 1 else []


if __name__ == "__main__":
    main()
