"""Small worlds and histories that a person can check by hand."""

import numpy as np
import pytest

from hpctrip.sim.policies.base import SiteView
from hpctrip.sim.rounds import CohortRound, History, RoundRow


@pytest.fixture
def view():
    """`view(power, comm)`: what policies see of sites with 10 s of work each."""

    def build(power, comm, distance_m=None, update_bytes=1.5e9):
        power, comm = np.array(power, dtype=float), np.array(comm, dtype=float)
        distance = np.arange(len(power)) * 1e6 if distance_m is None else np.array(distance_m, dtype=float)
        return SiteView(power, comm, distance, np.full(len(power), 10.0), update_bytes)

    return build


@pytest.fixture
def history():
    """`history((k, vote, accuracy), ...)`: rounds of 100 s each, as far as policies look at them."""

    def build(*rounds):
        rows = []
        for number, (k, vote, accuracy) in enumerate(rounds, start=1):
            zeros = np.zeros(k)
            cohort = CohortRound(np.arange(k), *[zeros] * 8)
            known = dict.fromkeys(RoundRow.__dataclass_fields__, 0.0)
            known |= {"round": number, "clock_start_s": 100.0 * (number - 1), "clock_s": 100.0 * number}
            known |= {
                "num_sites": k,
                "voted_num_sites": vote,
                "accuracy": accuracy,
                "eval_seen": 0 if accuracy is None else 1,
            }
            rows.append(RoundRow(**known | {"cohort": cohort, "candidates": None}))
        return History(tuple(rows))

    return build
