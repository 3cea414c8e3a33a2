"""The exchange in fragments that overlaps computing: the input's table [overlap]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from hpctrip.base.errors import Fault, InputError
from hpctrip.config.component import Component, config_key
from hpctrip.sim.world import World

if TYPE_CHECKING:
    import torch

MOST_SITES = 16
"""Sites that keep a model of their own between rounds."""


@dataclass(frozen=True)
class Replica:
    """A site's own model between rounds, and how it takes in the fragment that the last round has exchanged."""

    params: torch.Tensor
    """[P], read when the site begins and overwritten when it has trained."""
    part: slice
    """The fragment."""
    steps: int
    """Steps of the round before it is taken in."""
    blend: float
    """Share of the global fragment in the result; the rest is the site's own."""


class Overlap(Component):
    """The exchange of the model in fragments, and its overlap with computing (Streaming DiLoCo, arXiv 2501.18512). Each
    round exchanges one fragment; the rest of a site's model stays its own."""

    fragments: int = Field(1, ge=1, le=10_000)
    """P: pieces of the parameter vector, of equal size. A round exchanges one of them, in turn: each has travelled
    after P rounds, so DiLoCo's H is P times `train.local_steps`, and a transfer has 1 / P of the bytes."""
    steps: int = Field(0, ge=0, le=1_000_000)
    """tau: steps of the next round that a site makes while the fragment is under way, before it takes it in. A site
    waits only where a transfer takes longer."""
    blend: float = Field(1.0, gt=0, le=1)
    """alpha: share of the global fragment in what a site goes on with; the rest is its own. 1: it is replaced."""
    delayed: bool = False
    """The outer step takes the mean update of the round before, whose transfer overlaps a whole round (naive delay,
    arXiv 2502.12996). For comparison: it trains worse."""

    @model_validator(mode="after")
    def _one_way(self) -> Overlap:
        if self.delayed and self.keeps_replicas:
            raise ValueError(
                "delayed = true exchanges whole models: leave fragments, steps and blend at their defaults"
            )
        return self

    @property
    def keeps_replicas(self) -> bool:
        """Whether sites go on with models of their own; else each round starts from the global one."""
        return self.fragments > 1 or self.steps > 0 or self.blend < 1

    def part(self, round: int, num_params: int) -> slice:
        """The entries of the parameter vector that a round, from 1 on, exchanges."""
        number = (round - 1) % self.fragments
        first, end = (i * num_params // self.fragments for i in (number, number + 1))
        return slice(first, end)

    def replica(self, params: torch.Tensor, round: int) -> Replica:
        """The model of a site in a round, from its parameters [P]."""
        part = self.part(round - 1, len(params)) if round > 1 else slice(0)
        return Replica(params, part, self.steps, self.blend)

    def num_sent(self, num_params: int) -> int:
        """Entries of the largest fragment."""
        return -(-num_params // self.fragments)

    def of(self, world: World, num_params: int, local_steps: int | None) -> World:
        """The world in which a transfer has the bytes of a fragment, and overlaps computing."""
        share = self.num_sent(num_params) / num_params
        return replace(
            world,
            update_bytes=share * world.update_bytes,
            model_bytes=share * world.model_bytes,
            overlap=1.0 if self.delayed else self.steps / (local_steps or 1),
        )

    def check(self, experiment: Any, num_sites: int) -> None:
        """Raises InputError with every table of an experiment that does not fit."""
        if self.delayed or self.keeps_replicas:
            faults = [*self._faults(experiment, num_sites)]
            if faults:
                raise InputError(faults=faults)

    def _faults(self, e: Any, num_sites: int) -> Iterator[Fault]:
        together, all_sites = "[overlap] needs every site in every round", "set policy.kind = 'all'"
        if e.rounds.leaves_flights:
            yield Fault(config_key("rounds", e.rounds), together, "use synchronous rounds")
        if e.policy.kind != "all":
            yield Fault(f"policy.kind = {e.policy.kind!r}", together, all_sites)
        if e.faults.deadline_s is not None:
            yield Fault(f"faults.deadline_s = {e.faults.deadline_s:g}", together, "leave deadlines out")
        if e.availability:
            yield Fault("availability", together, "leave the tables out")
        if e.accounts.site_budgets:
            yield Fault("accounts", f"{together}, also one that has spent its budget", "leave site_max_* out")
        if e.timing.compute == "measured":
            problem = "[overlap] needs the time of a step before it is run"
            yield Fault("timing.compute = 'measured'", problem, 'use "modelled"')
        if not self.keeps_replicas:
            return
        if num_sites > MOST_SITES:
            problem = f"would keep a model for each of {num_sites} sites, the most is {MOST_SITES}"
            yield Fault("overlap", problem, "lower sites.num_sites")
        if e.train.local_steps is None or e.rounds.work_by_speed or e.rounds.work_s:
            problem = "needs the same number of steps at every site"
            yield Fault("overlap", problem, "set train.local_steps, and no rounds.work_s or work_by_speed")
        elif self.steps >= e.train.local_steps:
            bound = f"is not below train.local_steps = {e.train.local_steps}"
            yield Fault(f"overlap.steps = {self.steps}", bound, "the next fragment is sent then: lower it")
        if e.train.prox_mu:
            problem = "pulls sites to the global model, and with [overlap] they go on with their own"
            yield Fault(f"train.prox_mu = {e.train.prox_mu:g}", problem, "leave it out")

    def check_model(self, num_params: int, num_buffers: int, place: str) -> None:
        """Raises InputError at `place`, the key of the model, where it cannot be exchanged in fragments."""
        if self.fragments > num_params:
            problem = f"is more than the {num_params:,} parameters"
            raise InputError(f"overlap.fragments = {self.fragments}", problem, "lower it")
        if self.keeps_replicas and num_buffers:
            problem = "has buffers, such as running means, which are no part of a fragment"
            raise InputError(place, problem, "use a model without them, or leave [overlap] out")
