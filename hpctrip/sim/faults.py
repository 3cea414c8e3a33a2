"""Faults of the simulated world: sites that go out and return (availability/outages.py), updates that the WAN loses or
delays, and the deadline after which the aggregator proceeds without the missing.

Shapes: N sites. Everything is a function of the seed, the simulated time and the round.
"""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.config.sources import Reads
from hpctrip.sim.availability import Availability
from hpctrip.sim.availability.outages import RandomOutages, read_outages
from hpctrip.sim.timing import LONGEST_ROUND_S, Timing

MOST_OUTAGES_A_ROUND = 1_000
"""Mean number of random outages of a site within a deadline: each is one more step of the clock."""


class Faults(Component):
    """Faults of the simulated world; by default there are none.

    A site with an outage has no power: it makes no progress, and the profiler sees power 0 (except for noise and
    observations from before the outage). A policy may still choose it; the aggregator then neither sends it the model
    nor waits for it. A site whose outage begins during training continues when it returns, if the deadline permits.
    """

    deadline_s: Seconds | None = Field(None, gt=0, le=LONGEST_ROUND_S)
    """Time after a round's start at which the aggregator proceeds without missing updates. A round in which no site
    can be reached also lasts until the deadline and leaves the model unchanged. At most ten years. Absent: it waits
    for all updates."""
    mtbf_s: Seconds | None = Field(None, ge=60, le=LONGEST_ROUND_S)
    """Mean time between a site's return and its next outage (exponential), at most ten years; absent: no random
    outages. A deadline may span at most 1,000 times mtbf_s + mttr_s, and a run 20 million outages on average."""
    mttr_s: Seconds = Field(3600.0, ge=1, le=LONGEST_ROUND_S)
    """Mean length of a random outage (exponential)."""
    outages: Annotated[PathName | None, Reads()] = None
    """A CSV file of outages with the columns `site`, `start_s`, `end_s` (or `_min`, `_h`), instead of random ones."""
    lost_fraction: float = Field(0.0, ge=0, le=1)
    """Probability per round and site that the WAN loses its update."""
    late_fraction: float = Field(0.0, ge=0, le=1)
    """Probability per round and site that its update is delayed by `late_s`."""
    late_s: Seconds = Field(60.0, gt=0, le=LONGEST_ROUND_S)
    """Mean delay of a delayed update (exponential), added to its communication time."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: policies plan with the deadline, in the length of a round, its gain and what it spends."""
        return 1 if self.deadline_s is None else 2

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.mtbf_s is not None and self.outages is not None:
            raise ValueError("mtbf_s and outages exclude each other: random outages, or those of a file")
        if self.deadline_s is None and (self.mtbf_s or self.outages or self.lost_fraction):
            raise ValueError(
                "outages and lost updates need a deadline_s: else the aggregator would wait forever"
            )
        between_s = (self.mtbf_s or np.inf) + self.mttr_s
        if self.deadline_s is not None and self.deadline_s > MOST_OUTAGES_A_ROUND * between_s:
            raise ValueError(
                f"deadline_s = {self.deadline_s:g} spans more than {MOST_OUTAGES_A_ROUND:,} outages a site, one every "
                f"mtbf_s + mttr_s = {between_s:g} s: shorten deadline_s, or raise mtbf_s or mttr_s"
            )
        return self

    def check(self, timing: Timing) -> None:
        """InputError where it is not known in advance which sites miss the deadline."""
        if timing.compute == "measured" and self != Faults():
            raise InputError(
                'timing.compute = "measured"',
                "who misses a deadline must be known before the training that would be measured",
                'use compute = "modelled", or leave the table [faults] out',
            )

    def availability(self, num_sites: int, seed: int) -> tuple[Availability, ...]:
        """The availability of `num_sites` sites. InputError names the line of the CSV file that is wrong."""
        if self.outages is not None:
            return (read_outages(self.outages, num_sites),)
        if self.mtbf_s is not None:
            return (RandomOutages(num_sites, self.mtbf_s, self.mttr_s, seed),)
        return ()

    def wan(self, round: int, num_sites: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(lost [N] bool, extra delay [N] s) of the updates of a round on the WAN. Drawn for all sites from the stream
        (seed, "wan", round), so that those of a site do not depend on the cohort."""
        if not (self.lost_fraction or self.late_fraction):
            return np.zeros(num_sites, dtype=bool), np.zeros(num_sites)
        rng = stream(seed, "wan", round)
        lost, late = rng.uniform(size=(2, num_sites))
        extra_s = rng.exponential(self.late_s, num_sites)
        return lost < self.lost_fraction, np.where(late < self.late_fraction, extra_s, 0.0)
