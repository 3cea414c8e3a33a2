"""Cost of rank 0's decision: the profiler's view, the ranking and Algorithm 1, for 100 and for 100,000 sites.

    python benchmarks/selection.py [--repeats 20] [--share 0.1]

Prints the median over the repeats, per policy; no training and no data are involved. The history is 50 rounds of a
share of the sites, with an assumed accuracy that rises by 0.01 a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np

from hpctrip.runner.experiment import experiment_of
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.step import Simulation, State


def simulation(num_sites: int, power: str, policy: str) -> Simulation:
    """The paper's world with `num_sites` sites of 600 samples each, without an end."""
    tables = {"sites": {"num_sites": num_sites}, "power": {"kind": power}, "policy": {"kind": policy}}
    experiment = experiment_of(tables | {"stop": {"target_accuracy": "none"}})
    return experiment.simulation(num_params=1, num_samples=np.full(num_sites, 600))


KINDS = (
    *("powertrip", "goodput", "oort", "fedcs", "tifl", "power-of-choice", "fedzero"),
    *("first-back", "static", "random", "highest-power", "fixed-radius"),
)


def after(simulation: Simulation, rounds: int, share: float) -> State:
    """The state after so many rounds of this share of the sites."""
    k, state = max(1, round(share * len(simulation.world))), State()
    simulation = replace(simulation, policy=POLICIES["static"](k=k))
    for number in range(1, rounds + 1):
        draft = simulation.begin(state)
        state, _ = simulation.finish(draft, Outcome.assumed(np.zeros(k), accuracy=0.01 * number))
    return state


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1)
    given = parser.parse_args()
    print(f"{'sites':>8}  {'power':8}  {'policy':16}  {'median ms':>9}  {'max ms':>8}")
    for num_sites in (100, 100_000):
        for power in ("uniform", "trace"):
            state = after(simulation(num_sites, power, "static"), 50, given.share)
            for kind in KINDS:
                decides, times_ms = simulation(num_sites, power, kind), []
                for _ in range(given.repeats):
                    began = time.perf_counter()
                    decides.decide(decides.view(state), state.history)
                    times_ms.append(1e3 * (time.perf_counter() - began))
                print(
                    f"{num_sites:8d}  {power:8}  {kind:16}  {statistics.median(times_ms):9.3f}  {max(times_ms):8.3f}"
                )


if __name__ == "__main__":
    main()
