"""Cost of rank 0's decision: the profiler's view, the ranking and Algorithm 1, for 100 and for 100,000 sites.

    python benchmarks/selection.py [--repeats 20]

Prints the median over the repeats, per policy; no training and no data are involved. The history is 50 rounds long.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from hpctrip.base.rng import stream
from hpctrip.sim.network import Network
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import CohortRound, History, RoundRow
from hpctrip.sim.sites import PowerLaw
from hpctrip.sim.throughput import THROUGHPUT_MODELS
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World


def world(num_sites: int, power: str) -> World:
    """The paper's world with `num_sites` sites."""
    model = POWER_MODELS[power]()
    return World.build(
        PowerLaw(num_sites=num_sites), Network(), model, THROUGHPUT_MODELS["linear"](), Timing(), 0.0, seed=0
    )


def history(num_sites: int, rounds: int = 50) -> History:
    """Rounds of a tenth of the sites, as far as policies look at them."""
    k = max(1, num_sites // 10)
    known = dict.fromkeys(RoundRow.__dataclass_fields__, 0.0) | {"candidates": None}
    cohort = CohortRound(np.arange(k), *[np.zeros(k)] * 8)
    return History(
        tuple(
            RoundRow(
                **known | {"round": r, "num_sites": k, "accuracy": 0.01 * r, "eval_seen": 1, "cohort": cohort}
            )
            for r in range(1, rounds + 1)
        )
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    print(f"{'sites':>8}  {'power':8}  {'policy':16}  {'median ms':>9}  {'max ms':>8}")
    for num_sites in (100, 100_000):
        past, work_s = history(num_sites), np.full(num_sites, 12.0)
        for power in ("uniform", "trace"):
            w = world(num_sites, power)
            for kind in ("powertrip", "static", "random", "highest-power", "fixed-radius"):
                policy = POLICIES[kind]()
                times_ms = []
                for repeat in range(repeats):
                    began = time.perf_counter()
                    view = Profiler().view(w, 1000.0 * repeat, past, work_s, seed=0)
                    policy.select(view, past, stream(0, "policy", repeat))
                    times_ms.append(1e3 * (time.perf_counter() - began))
                print(
                    f"{num_sites:8d}  {power:8}  {kind:16}  {statistics.median(times_ms):9.3f}  {max(times_ms):8.3f}"
                )


if __name__ == "__main__":
    main()
