"""The contract of a policy: a pure function of the site view, the history and a named random stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.validate import instance, integers
from hpctrip.config.component import Component, Registry
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView

MOST_LOCAL_WORK = 1000
"""Largest local work, as a multiple of that of [train]."""
MOST_VISITS = 100_000_000
"""Most samples that a site visits in one round: their order is drawn at once, 8 bytes each."""


@dataclass(frozen=True)
class Decision:
    """Which sites train in the next round: `cohort` holds site indices, best first."""

    cohort: np.ndarray
    candidates: Candidates | None = None
    local_work: int | np.ndarray = 1
    """Training of each site in this round, as a multiple of that of [train]: one number, or one for each site of
    `cohort`, as which it is checked."""

    def local_work_of(self, num_sites: int) -> np.ndarray:
        """The local work of every site, [N]; outside the cohort it is the largest, as no site of these starts."""
        work = np.full(num_sites, np.max(self.local_work))
        work[self.cohort] = self.local_work
        return work

    def checked(self, num_sites: int, place: str, round: int) -> Self:
        """The same decision, as int64. InputError at `place` where the cohort is not a non-empty set of distinct sites,
        a candidate lacks a size or a number (which may be NaN or infinite), or the local work is out of range."""
        cohort = np.asarray(self.cohort)
        is_set = cohort.ndim == 1 and len(cohort) and np.issubdtype(cohort.dtype, np.integer)
        is_set = is_set and cohort.min() >= 0 and cohort.max() < num_sites
        if not is_set or np.bincount(cohort.astype(np.int64)).max() > 1:
            raise InputError(
                place,
                f"chose {' '.join(np.array2string(cohort, threshold=10).split())} in round {round}",
                f"a cohort is a non-empty array of distinct site indices from 0 to {num_sites - 1}",
            )
        what = f"the local work of round {round}"
        one = np.ndim(self.local_work) == 0
        each = np.full(len(cohort), self.local_work) if one else self.local_work
        local_work = integers(each, cohort.shape, 1, MOST_LOCAL_WORK, place, what)
        candidates = self._weighed(num_sites, place, round)
        return replace(self, cohort=cohort.astype(np.int64), candidates=candidates, local_work=local_work)

    def _weighed(self, num_sites: int, place: str, round: int) -> Candidates | None:
        if self.candidates is None:
            return None
        weighed = instance(self.candidates, Candidates, place, f"the candidates of round {round}")
        shape = np.shape(weighed.k)[:1] or (1,)
        if shape == (0,):
            raise InputError(place, f"gave no candidates in round {round}", "give None where none is weighed")
        k = integers(weighed.k, shape, 1, num_sites, place, f"the candidates' k in round {round}")
        for name, values in vars(weighed).items():
            value = np.asarray(values)
            if name != "k" and (value.dtype != np.float64 or value.shape != shape):
                problem = f"gave the candidates' {name} as {value.dtype} {list(value.shape)} in round {round}"
                raise InputError(place, problem, f"it must be float64 {list(shape)}")
        return replace(weighed, k=k)


class Policy(Component):
    """Base of all policies. A policy has no memory: everything it may use is in the arguments of `select`."""

    sees_labels: ClassVar[bool] = False
    """Whether `select` needs `SiteView.label_counts`. They are then columns of /sites in the results file."""

    @property
    def compares_updates(self) -> bool:
        """Whether `select` needs `RoundRow.update_cosine` or `update_curvature`. The last mean update is then kept with
        the state of the server optimiser, 8 bytes a parameter."""
        return False

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """Choose the cohort of the round after `history`, of which `History.running` keeps what is summed over all
        rounds. `rng` is the stream (seed, "policy", round)."""
        raise NotImplementedError

    def check(self, num_sites: int) -> None:
        """Raise InputError where the policy cannot work with `num_sites` sites: by default, where it has a fixed cohort
        size `k` that is larger."""
        k = getattr(self, "k", None)
        if isinstance(k, int) and k > num_sites:
            raise InputError(f"policy.k = {k}", f"there are only {num_sites} sites", f"use 1 to {num_sites}")

    def replaces(self, num_sites: Callable[[], int]) -> dict[str, dict[str, Any]]:
        """{table: {key: value}} of the input that this policy sets: for a baseline that is a world of its own.

        `num_sites()` is the number of sites that the input asks for.
        """
        return {}


def work_within(sites: SiteView, seconds: np.ndarray | float) -> np.ndarray:
    """Local work that each site does in so many seconds, [N] or for all, with the power that it is believed to have:
    whole multiples of that of [train], at least 1, [N]."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a site without samples has no work
        units = np.where(sites.work_s > 0, seconds * sites.throughput_fraction / sites.work_s, 1.0)
    return np.clip(np.floor(units * (1 + 1e-12)), 1, MOST_LOCAL_WORK).astype(np.int64)


def best_first(score: np.ndarray) -> np.ndarray:
    """Indices by falling score; ties to the smaller index, so that no result depends on a sort's whim."""
    return np.argsort(-score, kind="stable")


POLICIES = Registry("policy", default="powertrip", required=Policy.select)
