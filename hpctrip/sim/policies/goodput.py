"""The policy goodput: the most progress per second by the measured noise, over every deadline of a round; and its
adaptive local work, after AdaComm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from hpctrip.config.identity import Added
from hpctrip.sim.noise import (
    INITIAL_NOISE,
    LARGEST_WEIGHT,
    SMOOTHING,
    STEEPEST_WEIGHT,
    bounded_noise,
    noise_weight,
    slowdown,
)
from hpctrip.sim.policies.base import MOST_LOCAL_WORK, POLICIES, Decision, Policy, best_first
from hpctrip.sim.rounds import Candidates, History, LastSeen, RoundRow, Status
from hpctrip.sim.timing import prefix_in_time, prefix_mean, prefix_round_s, return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class Goodput(Policy):
    """All sites that finish within the deadline T that maximises gain / T.

    Sites are sorted once by finishing time; further sites that finish within a deadline do not lengthen the round, so
    only N deadlines matter. A cohort of weight m (its number of sites, of which those that have not trained recently
    count more) makes l / (1 + c * nu * (N - m) / (N - 1) / m) of the progress of all sites. Here nu is the measured
    noise-to-signal ratio, c its weight, which follows from the measured curvature of the loss (sim/noise.py), and l the
    mean work of the cohort's sites divided by that of all: a site that visits half as many samples makes half as long a
    step. The form is that of McCandlish et al. 2018, Eq. 2.6, with sites in place of samples. A cohort that trains
    repeatedly fits its own data, its mean update shrinks, and nu grows: so small cohorts are abandoned before they
    level off."""

    kind = "goodput"
    rules = 2
    """2: sites weigh by their work, nu is that of equal work, and a site that would miss the deadline is not asked."""
    initial_noise: float = Field(INITIAL_NOISE, gt=0, le=1e9)
    """nu before the first measurement."""
    measured: bool = True
    """Whether nu is measured during training; false: it stays at `initial_noise`."""
    smoothing: float = Field(SMOOTHING, ge=0, le=0.9)
    """Weight of the past in the averages for nu and c, over at most 64 rounds."""
    noise_weight: float | None = Field(None, gt=0, le=1e6)
    """c, the effect of the noise of the mean update on progress; 1: as with the optimal step length; absent: measured
    during training."""
    progress: Added[Literal["inverse", "exponential"]] = "inverse"
    """How a cohort's progress falls with its noise x = c nu (N - m) / (N - 1) / m: inverse: as 1 / (1 + x), with c at
    most 1, the form for the best step length; exponential: as exp(-x), with c at most 20, for steps that may be longer,
    with which a noisy cohort makes no progress."""
    weigh_work: bool = True
    """Whether l is used; false: all sites are assumed to make equally long steps."""
    coverage: float = Field(1.0, ge=0, le=1e6)
    """Extra weight of a site that has not trained for some rounds: 1 + coverage ln(1 + rounds); 0: none."""
    growth: float = Field(2.0, gt=1, le=1e9)
    """Maximum growth factor of a cohort from one round to the next, because nu is an estimate."""
    min_sites: int = Field(2, ge=1, le=10_000_000)
    """Smallest cohort; the noise of a single site cannot be measured."""
    local_work: Literal["fixed", "adaptive"] = "fixed"
    """Amount of local training in a round. fixed: as in [train]. adaptive: a multiple of it, as in AdaComm (Wang &
    Joshi 2019): more while communication dominates a round, less as the loss falls."""
    max_local_work: int = Field(8, ge=1, le=MOST_LOCAL_WORK)
    """Maximum multiple."""

    @property
    def compares_updates(self) -> bool:
        """Whether c is measured."""
        return self.noise_weight is None

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """Every deadline is a candidate: k sites, their gain, T and gain / T."""
        work = local_work(history, self.max_local_work) if self.local_work == "adaptive" else 1
        sites = replace(sites, work_s=work * sites.work_s)
        back_s, num_sites = return_s(sites), len(sites)
        order = best_first(-back_s)
        round_s = prefix_round_s(sites, order, sites.clock)
        most = num_sites if history.last is None else math.ceil(self.growth * history.last.num_sites)
        usable = int((np.isfinite(back_s[order]) & np.isfinite(round_s)).sum())  # the others come last
        most = max(1, min(most, usable))
        k = np.arange(min(self.min_sites, most), most + 1)
        all_back = prefix_in_time(sites, order)[k - 1] == k
        k = k[all_back] if all_back.any() else k[-1:]
        each = 1 + self.coverage * np.log1p(LastSeen.of(history, num_sites).age)
        worth = np.minimum(np.cumsum(each[order]), num_sites)[k - 1]
        step = self._step(sites.work_s[order])[k - 1]
        gain = step * self._progress(worth, num_sites, history)
        candidates = Candidates(k, gain, round_s[k - 1], gain / round_s[k - 1])
        return Decision(order[: candidates.vote], candidates, work)

    def _progress(self, worth: np.ndarray, num_sites: int, history: History) -> np.ndarray:
        """Share of the progress of all sites that cohorts of this weight [m] make in a round, without l, [m]."""
        steep = self.progress == "exponential"
        largest = STEEPEST_WEIGHT if steep else LARGEST_WEIGHT
        weight = self.noise_weight or noise_weight(history.rows, self.smoothing, largest)
        slower = slowdown(worth, num_sites, self._noise(history), weight)
        if not steep:
            return 1 / slower
        noise = slower - 1
        return np.exp(max(0.0, noise.min() - _MOST_NOISE) - noise)

    def _noise(self, history: History) -> float:
        if not self.measured:
            return self.initial_noise
        return bounded_noise(history.rows, self.smoothing, self.initial_noise)

    def _step(self, work_s: np.ndarray) -> np.ndarray:
        """l, how long the mean update of the first k sites is over that of all, for every k, [N]."""
        mean_s = prefix_mean(work_s)
        return mean_s / mean_s[-1] if self.weigh_work and mean_s[-1] > 0 else np.ones(len(work_s))


_MOST_NOISE = 500.0
"""Beyond it exp(-x) tells of cohorts only how they compare, so that it does not become 0."""
_RECENT = 5
"""Rounds whose mean loss is the present loss F, and among which the first loss F_1 is looked for."""


def local_work(history: History, maximum: int) -> int:
    """The work of every site in the round after `history`, as a multiple of that of [train], from 1 to `maximum`.

    Wang & Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update
    SGD", Sec. 4: a round makes ceil(sqrt(F / F_1) tau_1) local steps, where F is the training loss now and F_1 that of
    the first round. The best number of steps grows as sqrt(D) there, D being the time that communication takes; tau_1
    is found by trial. Here it is sqrt(D / Y), of the site for which the last round waited: D is its communication, Y
    its compute for the work of [train]. F is the mean loss of the sites' first batches, at the global model: later
    losses fall with the local work itself. F / F_1 counts as 1 where it is larger or not known. Before anything is
    measured, and where no straggler's times are known, the work is that of [train]."""
    last = history.last
    if last is None or not 0 < last.straggler_compute_s < math.inf:
        return 1
    squared = _loss_ratio(history) * last.straggler_comm_s * last.local_work / last.straggler_compute_s
    return math.ceil(min(math.sqrt(squared), maximum)) if squared > 1 else 1


def _loss_ratio(history: History) -> float:
    """F / F_1, from 0 to 1."""
    first = next(filter(math.isfinite, map(_loss, history.rows[:_RECENT])), math.nan)
    recent = [loss for loss in map(_loss, history.rows[-_RECENT:]) if math.isfinite(loss)]
    return float(np.clip(np.mean(recent) / first, 0, 1)) if recent and first > 0 else 1.0


def _loss(row: RoundRow) -> float:
    """Mean over the sites whose updates arrived; NaN where none did."""
    losses = row.cohort.loss_before[row.cohort.status == Status.ARRIVED]
    return float(np.mean(losses)) if len(losses) else math.nan
