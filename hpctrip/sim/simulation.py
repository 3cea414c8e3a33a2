"""The simulated half of a round, without a model: what is seen, who is chosen, how long it takes.

The main loop, `plan` and `verify` share it, so that what is planned or replayed is what runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.sim.policies.base import Decision, Policy, SiteView
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import History
from hpctrip.sim.world import World


@dataclass(frozen=True)
class Simulation:
    """A world and who decides in it. Its methods are pure functions of the clock and the history."""

    world: World
    profiler: Profiler
    policy: Policy
    num_visits: np.ndarray
    """Samples that each site trains on in a round, [N]."""
    seed: int

    def work_s(self, history: History) -> np.ndarray:
        """c_i: seconds of one round of local work at full power, [N]; measured ones as far as known."""
        seconds_per_sample = self.world.timing.seconds_per_sample
        if self.world.timing.compute == "measured" and history.last is not None:
            cohort = history.last.cohort
            seconds_per_sample = float(cohort.train_wall_s.sum() / cohort.num_samples.sum())
        return seconds_per_sample * self.num_visits

    def view(self, clock_s: float, history: History) -> SiteView:
        """What the aggregator believes of every site at `clock_s`."""
        return self.profiler.view(self.world, clock_s, history, self.work_s(history), self.seed)

    def decide(self, view: SiteView, history: History) -> Decision:
        """The policy's choice for the round after `history`, checked: a non-empty set of distinct sites."""
        round = len(history) + 1
        decision = self.policy.select(view, history, stream(self.seed, "policy", round))
        cohort = np.asarray(decision.cohort)
        if not (
            cohort.ndim == 1
            and len(cohort)
            and np.issubdtype(cohort.dtype, np.integer)
            and len(np.unique(cohort)) == len(cohort)
            and cohort.min() >= 0
            and cohort.max() < len(self.world)
        ):
            raise InputError(
                f"policy {self.policy.kind!r}",
                f"chose {' '.join(np.array2string(cohort, threshold=10).split())} in round {round}",
                f"a cohort is a non-empty array of distinct site indices from 0 to {len(self.world) - 1}",
            )
        return replace(decision, cohort=cohort.astype(np.int64))
