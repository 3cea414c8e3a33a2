"""Cost of what grows with sites and rounds: outages, budgets, decisions, and a results file of two million rows.

    python benchmarks/large.py [--folder FOLDER]

Prints seconds, no training and no data are involved: the outcomes of training are assumed. FOLDER keeps the large
results file, for `hpctrip show` and `hpctrip export`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from selection import after, simulation

from hpctrip.record.reader import open_run
from hpctrip.record.writer import write_run
from hpctrip.runner.experiment import experiment_of
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.rounds import History
from hpctrip.sim.step import Simulation, State


def world(num_sites: int, **tables: Any) -> Simulation:
    """A world of these tables with 600 samples a site, without an end."""
    tables = {"sites": {"num_sites": num_sites}, "stop": {"target_accuracy": "none"}} | tables
    return experiment_of(tables).simulation(num_params=1, num_samples=np.full(num_sites, 600))


def rounds_s(simulated: Simulation, number: int) -> list[float]:
    """Seconds of each of the first rounds."""
    state, times_s = State(), []
    for _ in range(number):
        began = time.perf_counter()
        draft = simulated.begin(state)
        state, _ = simulated.finish(draft, Outcome.assumed(np.zeros(len(draft.cohort)), accuracy=0.1))
        times_s.append(time.perf_counter() - began)
    return times_s


def decisions(kind: str) -> Iterator[float]:
    """Seconds of the decisions after 5,000 rounds of 100 of 1,000 sites, each after one more round."""
    state, decides = (
        after(simulation(1000, "uniform", "static"), 5000, 0.1),
        simulation(1000, "uniform", kind),
    )
    goes_on = replace(decides, policy=POLICIES["static"](k=100))
    for number in range(6):
        draft = goes_on.begin(state)
        state, _ = goes_on.finish(draft, Outcome.assumed(np.zeros(100), accuracy=0.5))
        began = time.perf_counter()
        decides.decide(decides.view(state), state.history)
        if number:  # the first one reads all rounds
            yield time.perf_counter() - began


def write(path: Path, num_rounds: int, num_sites: int) -> History:
    """A results file of that many rounds of all sites; returns its history."""
    state = after(simulation(num_sites, "uniform", "static"), num_rounds, 1.0)
    sites = {"site": (np.arange(num_sites), "1", "site index")}
    meta = {"status": "finished", "stop_reason": "assumed", "seed": 0, "target_accuracy": 1.0}
    write_run(path, meta, sites, state.history)
    return state.history


def median_s(action: Callable[[], object]) -> float:
    """Seconds, the median of 15."""
    times_s = []
    for _ in range(15):
        began = time.perf_counter()
        action()
        times_s.append(time.perf_counter() - began)
    return statistics.median(times_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp())
    faults = {"mtbf_s": 36000.0, "mttr_s": 900.0, "deadline_s": 3600.0}
    outages = world(10**6, policy={"kind": "random", "k": 100}, faults=faults, power={"kind": "trace"})
    print("outages of a million sites, rounds 1 to 3:", *(f"{s:.2f}" for s in rounds_s(outages, 3)))
    budgets = rounds_s(world(1000, accounts={"site_max_energy": 1e15}), 1000)
    parts = [statistics.median(part) for part in (budgets[1:20], budgets[-20:])]
    print("site budgets, rounds 2 to 20 and 981 to 1,000:", *(f"{s:.4f}" for s in parts))
    for kind in ("oort", "fedzero"):
        print(f"a decision by {kind} after 5,000 rounds: {statistics.median(decisions(kind)):.4f}")
    small, large = folder / "small.h5", folder / "large.h5"
    write(small, 20, 10)
    print(f"opening {small}: {median_s(lambda: open_run(small)):.3f}")
    write(large, 2000, 1000)
    print(f"{large}: {large.stat().st_size / 1e6:.0f} MB, for show and export")


if __name__ == "__main__":
    main()
