"""A plug-in: kinds of rounds for tests, in which updates arrive later than in the round in which their sites start."""

import os
import time
from itertools import count

import numpy as np

from hpctrip.sim.arrivals import ROUNDS, Events, Rounds


class Fading(Rounds):
    """Old updates weigh less."""

    fading: float = 0.0
    """Exponent of an update's age in its weight."""

    def discounts(self, age):
        """1 / (1 + age)^fading."""
        return (1.0 + age) ** -self.fading


@ROUNDS.add
class DelayedByOne(Fading):
    """Every update arrives in the round after that in which its site started."""

    kind = "delayed by one"

    def times(self, world, state, decision, work_s):
        """The round ends when all updates of the last one have ended, and one of its own is at the aggregator."""
        time.sleep(float(os.environ.get("HPCTRIP_TEST_SLOW", "0")))  # so that a test can kill the run
        events = Events(world, state, decision, work_s)
        events.start(decision.cohort)
        while (
            any(flight.version < state.round for flight in events.under_way)
            or events.clock_s == state.clock_s
        ):
            if (flight := events.next_end()) is None:
                break
            if flight.version < state.round:
                events.receive(flight)
        return events.times()


@ROUNDS.add
class AsTheyCome(Fading):
    """A round ends with every `num`th update; sites that are back start again at once, from the same model."""

    kind = "as they come"
    num: int = 2
    """Updates of a round."""

    def times(self, world, state, decision, work_s):
        """All of the cohort are under way from the round's beginning."""
        events = Events(world, state, decision, work_s)
        events.start(decision.cohort)
        for received in count(1):
            if (flight := events.next_end()) is None:
                break
            events.receive(flight)
            if received == self.num:
                break
            events.start(np.array([flight.site]))
        return events.times()
