"""What a store saves where one experiment is read under many clocks: rounds trained, and wall time.

    python benchmarks/retime.py
    python benchmarks/retime.py --sites 100 --samples 60000 --rounds 200 --without 3

Every reading is a run of its own over a 7 x 10 grid of WAN bandwidth and compute time per sample, all on one new store,
first with a fixed cohort, then with PowerTrip, whose cohorts follow the clock. Without a store every round of every run
would be trained; how long that takes is measured on some of the readings, spread over the grid, and scaled.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import hpctrip

POLICIES = {
    "static": {"policy.kind": "static", "policy.k": 10},
    "powertrip": {"policy.kind": "powertrip"},
}


@dataclass
class Cost:
    """Of some runs, all together."""

    runs: int = 0
    rounds: int = 0
    trained: int = 0
    wall_s: float = 0.0


def cost(readings: Iterable[dict], store: Path | None) -> Cost:
    """Run all readings, one after the other."""
    total = Cost()
    with tempfile.TemporaryDirectory() as folder:
        for number, reading in enumerate(readings):
            began = time.perf_counter()
            path = {} if store is None else {"store.path": str(store)}
            run = hpctrip.run((), {**reading, **path}, out=Path(folder, f"{number}.h5"), quiet=True)
            total.wall_s += time.perf_counter() - began
            total.runs += 1
            total.rounds += len(run.rounds)
            total.trained += len(run.rounds) - run.meta["stored_rounds"]
    return total


@click.command()
@click.option("--sites", default=40, show_default=True)
@click.option("--samples", default=2000, show_default=True, help="Training samples of all sites.")
@click.option("--rounds", default=30, show_default=True, help="At most so many a run.")
@click.option("--target", default=0.3, show_default=True, help="Target accuracy.")
@click.option("--bandwidths", default=7, show_default=True)
@click.option("--speeds", default=10, show_default=True)
@click.option("--keep-every", default=2, show_default=True, help="Rounds between two models that are kept.")
@click.option("--without", default=2, show_default=True, help="Readings that are run without a store too.")
def main(
    sites: int,
    samples: int,
    rounds: int,
    target: float,
    bandwidths: int,
    speeds: int,
    keep_every: int,
    without: int,
) -> None:
    """Measure and print."""
    experiment = {
        "sites.num_sites": sites,
        "workload.train_samples": samples,
        "workload.test_samples": 500,
        "stop.max_rounds": rounds,
        "stop.target_accuracy": target,
        "store.keep_every": keep_every,
        "watchdog.enabled": False,
        "checkpoint.enabled": False,
    }
    grid = [
        {"network.near_bandwidth_bps": float(bandwidth), "timing.seconds_per_sample": float(seconds)}
        for bandwidth in np.geomspace(2e8, 5e9, bandwidths)
        for seconds in np.geomspace(0.02, 2.0, speeds)
    ]
    print(
        f"{sites} sites, {samples:,} samples, {bandwidths} x {speeds} readings, a model kept every {keep_every} rounds"
    )
    print(
        f"{'policy':10} {'runs':>5} {'rounds':>7} {'trained':>8} {'less':>6}  {'wall s':>7}  {'without':>8}"
    )
    for name, policy in POLICIES.items():
        readings = [experiment | policy | reading for reading in grid]
        with tempfile.TemporaryDirectory() as store:
            found = cost(readings, Path(store))
        some = readings[:: max(1, len(readings) // without)][:without] if without else []
        alone = cost(some, None)
        scaled_s = alone.wall_s / alone.rounds * found.rounds if some else float("nan")
        print(
            f"{name:10} {found.runs:5d} {found.rounds:7d} {found.trained:8d} {found.rounds / found.trained:5.1f}x"
            f"  {found.wall_s:7.1f}  {scaled_s:8.1f}"
        )


if __name__ == "__main__":
    main()
