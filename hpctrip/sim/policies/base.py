"""The contract of a policy: a pure function of what is visible, what is recorded, and a named stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpctrip.base.component import Component, Registry
from hpctrip.base.errors import InputError
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView


@dataclass(frozen=True)
class Decision:
    """Which sites train in the next round: `cohort` holds site indices, best first."""

    cohort: np.ndarray
    candidates: Candidates | None = None


class Policy(Component):
    """Base of all policies. A policy has no memory: everything it may use is in the arguments of `select`."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """Choose the cohort of the round after `history`. `rng` is the stream (seed, "policy", round)."""
        raise NotImplementedError

    def check(self, num_sites: int) -> None:
        """Raise InputError where the policy cannot work with `num_sites` sites."""

    def replaces(self, num_sites: Callable[[], int]) -> dict[str, dict[str, Any]]:
        """{table: {key: value}} of the input that this policy sets: for a baseline that is a world of its own.

        `num_sites()` is the number of sites that the input asks for.
        """
        return {}


def check_k(k: int, num_sites: int) -> None:
    """InputError where a fixed cohort is larger than the world."""
    if k > num_sites:
        raise InputError(f"policy.k = {k}", f"there are only {num_sites} sites", f"use 1 to {num_sites}")


POLICIES = Registry("policy", default="powertrip")
