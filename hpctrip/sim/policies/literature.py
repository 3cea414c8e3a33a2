"""Client selection of the federated-learning literature: FedCS, power-of-choice, TiFL, Oort and FedZero.

Most of them rank sites by the training loss that a site last reported, which the history holds. Shapes: N sites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import Seconds
from hpctrip.sim.policies.base import (
    MOST_LOCAL_WORK,
    POLICIES,
    Decision,
    Policy,
    best_first,
    work_within,
)
from hpctrip.sim.rounds import History, LastSeen, RoundRow, Status
from hpctrip.sim.timing import prefix_in_time, prefix_round_s, return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class FedCS(Policy):
    """Nishio & Yonetani 2019, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
    Protocol 2 and Algorithm 3: from a random share C of the sites, greedily choose those that lengthen the round
    least, until the next would miss the deadline. In the paper uploads are sequential; here the clock determines the
    length of a round."""

    kind = "fedcs"
    deadline_s: Seconds = Field(60.0, gt=0)
    """T_round. The paper's 3 minutes are those of mobile phones."""
    fraction: float = Field(1.0, gt=0, le=1)
    """C: share of the sites that are candidates in a round."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The longest prefix of those asked, by when they return, that keeps the deadline; at least one site."""
        num_asked = max(1, round(self.fraction * len(sites)))
        asked = np.sort(rng.choice(len(sites), num_asked, replace=False))
        order = asked[best_first(-return_s(sites)[asked])]
        all_back = prefix_in_time(sites, order) == np.arange(1, len(order) + 1)
        in_time = np.flatnonzero(all_back & (prefix_round_s(sites, order, sites.clock) <= self.deadline_s))
        return Decision(order[: in_time[-1] + 1 if len(in_time) else 1])


@POLICIES.add
class PowerOfChoice(Policy):
    """Cho, Wang & Joshi 2020, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
    Selection Strategies", Sec. 4, the variant rpow-d that costs no extra communication: d candidates are drawn by
    their share of the data, and the k with the largest last loss train. Sites that never trained come first; sites
    that cannot finish before the round's deadline, or have no power, come last."""

    kind = "power-of-choice"
    rules = 2
    """2: a site that cannot return in time comes last."""
    k: int = Field(10, ge=1)
    """Cohort size (m in the paper)."""
    candidates: int = Field(30, ge=1)
    """d: number of candidates; at least k, at most all sites."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k of largest known loss among d; samples stand for data, and work for samples."""
        num_drawn = min(max(self.candidates, self.k), len(sites))
        share = sites.work_s / sites.work_s.sum() if np.count_nonzero(sites.work_s) >= num_drawn else None
        drawn = rng.choice(len(sites), num_drawn, replace=False, p=share)
        loss = np.nan_to_num(LastSeen.of(history, len(sites)).loss, nan=np.inf)
        loss[~np.isfinite(return_s(sites, self.k))] = -np.inf
        return Decision(drawn[best_first(loss[drawn])][: self.k])


@POLICIES.add
class TiFL(Policy):
    """Chai et al. 2020, "TiFL: A Tier-based Federated Learning System", Sec. 4: sites are divided into tiers by
    response latency; every round draws a tier, and k of its sites at random. Worse tiers are drawn more often, as long
    as they have credits; a site that does not answer in time is in no tier. The paper rates a tier by its accuracy on
    test data of its sites; sites have no such data here, so their last training loss is used. The probabilities change
    with every interval (the paper: only if the last tier's accuracy has not risen). Tiers follow the present power; a
    past round counts for the tier of its first site."""

    kind = "tifl"
    rules = 2
    """2: credits by tier, and an interval."""
    k: int = Field(10, ge=1)
    """Cohort size; a tier with fewer sites trains completely."""
    tiers: int = Field(5, ge=1, le=1000)
    """Number of tiers of equal size."""
    credits: int = Field(40, ge=1)
    """Number of rounds that the second tier may train; the third tier has half of that, the next a third, and so on;
    the fastest tier has no limit. (The paper gives slow tiers fewer, without numbers.)"""
    interval: int = Field(20, ge=1)
    """I: number of rounds after which the probabilities of the tiers change; they start equal."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """k sites of one tier, as tiers are now."""
        back_s = return_s(sites, min(self.k, -(-len(sites) // self.tiers)))
        order = best_first(-back_s)[: max(1, np.isfinite(back_s).sum())]
        tiers = np.array_split(order, min(self.tiers, len(order)))
        tier_of = np.full(len(sites), -1)
        for number, members in enumerate(tiers):
            tier_of[members] = number
        drawn = tier_of[np.array([row.cohort.site[0] for row in history.rows], dtype=np.int64)]
        spent = np.bincount(drawn[drawn >= 0], minlength=len(tiers))
        may = self.credits / np.maximum(1, np.arange(len(tiers)))
        may[0] = np.inf
        chances = np.where(spent < may, self._chances(history, tiers, len(sites)), 0)
        tier = tiers[rng.choice(len(tiers), p=chances / chances.sum())]
        return Decision(rng.choice(tier, min(self.k, len(tier)), replace=False))

    def _chances(self, history: History, tiers: list[np.ndarray], num_sites: int) -> np.ndarray:
        """Weight of each tier in the draw, by the rank of its mean loss at the last change, the largest first, as the
        paper's ChangeProbs; a tier that had never trained stands before all others."""
        last_change = len(history) // self.interval * self.interval
        if last_change == 0:
            return np.ones(len(tiers))
        rows = history.rows[max(0, last_change - LastSeen.MAX_ROUNDS) : last_change]
        loss = LastSeen.of(History(rows), num_sites).loss
        losses = [loss[members][~np.isnan(loss[members])] for members in tiers]
        mean = np.array([values.mean() if len(values) else np.inf for values in losses])
        chances = np.empty(len(tiers))
        chances[best_first(mean)] = np.arange(len(tiers), 0, -1)
        return chances


@POLICIES.add
class Oort(Policy):
    """Lai et al. 2021, "Oort: Efficient Federated Learning via Guided Participant Selection", Algorithm 1 (training).

    A site's utility is |B_i| sqrt(mean loss^2), clipped, plus a bonus for not having trained for long, times (T /
    t_i)^alpha if its time t_i exceeds the preferred time T. Most of the cohort is drawn by utility, the rest by speed
    among sites that have never trained. The pacer raises T when the utility of rounds has fallen. The mean of a site's
    losses replaces the root of their mean square; the bonus is in units of the largest utility. The constants are
    those of the paper and its implementation. Omitted: the blacklist of sites that were chosen too often, and the
    selection of 1.3 K sites for K updates, because all sites that can finish do."""

    kind = "oort"
    k: int = Field(10, ge=1)
    """Cohort size K."""
    exploration: float = Field(0.9, ge=0, le=1)
    """epsilon: share of new sites in the first round."""
    exploration_decay: float = Field(0.98, gt=0, le=1)
    """Its factor from round to round."""
    min_exploration: float = Field(0.2, ge=0, le=1)
    """The least share."""
    straggler_penalty: float = Field(2.0, ge=0, le=100)
    """alpha."""
    preferred_percentile: float = Field(30.0, gt=0, le=100)
    """Initial T, as a percentile of the sites' times."""
    pacer_step: float = Field(10.0, ge=0, le=100)
    """Step by which the pacer raises that percentile."""
    pacer_rounds: int = Field(20, ge=1)
    """W: the pacer compares the last W rounds with the W rounds before them."""
    cutoff: float = Field(0.95, gt=0, le=1)
    """c: sites are drawn among those with at least this share of the utility of the cohort's last site."""
    clip_percentile: float = Field(95.0, gt=0, le=100)
    """Utilities are clipped at this percentile."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """Sites that have trained are exploited, the others explored."""
        last, speed_s = LastSeen.of(history, len(sites)), return_s(sites, self.k)
        seen, new = np.flatnonzero(last.seen), np.flatnonzero(~last.seen)
        share = max(self.min_exploration, self.exploration * self.exploration_decay ** len(history))
        in_time = speed_s <= sites.deadline_s  # without a deadline everybody is back some time
        num_new = max(round(share * self.k), self.k - in_time[seen].sum())
        num_new = max(min(num_new, in_time[new].sum()), self.k - len(seen))
        explored = _drawn(new, 1 / np.maximum(speed_s[new], 1e-9), num_new, rng)
        num_old = min(self.k - num_new, len(seen))
        if num_old == 0:
            return Decision(explored)
        utility = self._utility(last, speed_s, history)[seen]
        ranked = best_first(utility)
        good = utility >= self.cutoff * utility[ranked[num_old - 1]]
        return Decision(np.concatenate([_drawn(seen[good], utility[good], num_old, rng), explored]))

    def _utility(self, last: LastSeen, speed_s: np.ndarray, history: History) -> np.ndarray:
        """Utility of every site, [N]; 0 where it has not trained."""
        statistical = np.nan_to_num(last.num_samples * last.loss)
        highest = np.percentile(statistical[last.seen], self.clip_percentile)
        round = len(history) + 1
        bonus = np.sqrt(0.1 * np.log(round) / np.maximum(1, round - 1 - last.age)) * highest
        utility = np.minimum(statistical, highest) + bonus
        usable_s = speed_s[np.isfinite(speed_s)]
        preferred_s = np.percentile(usable_s, self._percentile(history)) if len(usable_s) else np.inf
        slow = speed_s > preferred_s
        utility[slow] *= (preferred_s / speed_s[slow]) ** self.straggler_penalty
        return utility

    def _percentile(self, history: History) -> float:
        """Percentile of the preferred time: the pacer compares every W rounds with the W before."""

        def add(
            pacer: tuple[tuple[float, ...], float, int], rows: Sequence[RoundRow]
        ) -> tuple[tuple[float, ...], float, int]:
            """(gains since the last W rounds ended, gain in these, how often they gained less than the W before)."""
            gained, before, raised = pacer
            for row in rows:
                gained += (float(np.nansum(row.cohort.num_samples * row.cohort.train_loss)),)
                if len(gained) == self.pacer_rounds:
                    raised += sum(gained) < before
                    gained, before = (), sum(gained)
            return gained, before, raised

        *_, raised = history.running(("oort", self.pacer_rounds), ((), -np.inf, 0), add)
        return min(100.0, self.preferred_percentile + raised * self.pacer_step)


def _drawn(sites: np.ndarray, weight: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` of the sites without replacement, by weight; those of weight 0 only where the others do not suffice."""
    if count == 0:
        return sites[:0]
    weight = np.maximum(np.nan_to_num(weight), 0.0) + 1e-12 * max(1.0, float(weight.max()))
    return rng.choice(sites, count, replace=False, p=weight / weight.sum())


@POLICIES.add
class FedZero(Policy):
    """The k sites with the largest weighted statistical utility that can finish within the shortest round in which k
    can (Wiesner et al., e-Energy 2024, Sec. 4; arXiv 2305.15092).

    A site that has trained is blocked and released at random, the later the more often it trained, so that all sites
    take part. Differences from the paper: excess energy is a site's spare power P_i, if the grid is clean enough, and
    sites do not share it; expected power is that of [forecast]; a site does all its work or none (the paper: one to
    five epochs, at other speeds), so that the integer program reduces to the best k; the release of an unchosen free
    site is drawn again in the next round (the paper: it stays free); if fewer than k suitable sites are free, others
    are added (the paper waits).
    """

    kind = "fedzero"
    k: int = Field(10, ge=1)
    """Cohort size."""
    longest_round_s: Seconds = Field(3600.0, gt=0)
    """d_max: a site that needs longer for work and transfer is chosen only if others are too few."""
    step_s: Seconds = Field(60.0, gt=0)
    """Round lengths are tried in multiples of this: the paper's minute, for rounds of up to an hour."""
    max_g_per_kwh: float | None = Field(None, ge=0, le=1e6)
    """Maximum carbon intensity ([carbon]) at which power counts as excess; absent: no limit."""
    fairness: float = Field(1.0, ge=0, le=10)
    """alpha: a blocked site is released with probability min(1, (p - mean p)^-alpha); p is the number of its rounds,
    and the mean is over all sites. 0: at once."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k sites of the largest utility among those that return in time."""
        needed_s = return_s(sites, self.k)
        fits = needed_s <= self.longest_round_s
        if self.max_g_per_kwh is not None:
            if np.isnan(sites.g_per_kwh).any():
                problem = f"policy.max_g_per_kwh = {self.max_g_per_kwh:g}"
                raise InputError(problem, "needs the signal [carbon]", "set carbon.kind, e.g. constant")
            fits &= sites.g_per_kwh <= self.max_g_per_kwh
        free = ~self._blocked(len(sites), history, rng)
        # free before blocked, fitting before not; of the rest the soonest back, until there are k
        tier = 2 * ~fits + ~free
        last = np.lexsort((needed_s, tier))[self.k - 1]
        round_s = np.ceil(needed_s[last] / self.step_s) * self.step_s
        chosen = np.flatnonzero(tier < tier[last])
        candidates = np.flatnonzero((tier == tier[last]) & (needed_s <= round_s))
        best = candidates[np.argsort(-self._utility(sites, history)[candidates], kind="stable")]
        return Decision(np.concatenate([chosen, best[: self.k - len(chosen)]]))

    def _utility(self, sites: SiteView, history: History) -> np.ndarray:
        """The objective of the integer program, [N]: the samples that a site trains on, weighted by its statistical
        utility, which is their number times the loss that it last reported; a site that never did counts as the
        highest. Oort's utility, which FedZero takes, has the root mean square of the losses in place of their mean."""

        def add(loss: np.ndarray, rows: Sequence[RoundRow]) -> np.ndarray:
            loss = loss.copy()
            for row in rows:
                reported = (row.cohort.status == Status.ARRIVED) & ~np.isnan(row.cohort.train_loss)
                loss[row.cohort.site[reported]] = row.cohort.train_loss[reported]
            return loss

        loss = history.running(("fedzero loss", len(sites)), np.full(len(sites), np.nan), add)
        highest = np.nanmax(loss) if not np.isnan(loss).all() else 1.0
        return sites.work_s**2 * np.where(np.isnan(loss), highest, loss)

    def _blocked(self, num_sites: int, history: History, rng: np.random.Generator) -> np.ndarray:
        """Whether a site took part since it was last released, [N] bool. The release is drawn anew every round, so that
        nothing but the history has to be remembered."""

        def add(count: np.ndarray, rows: Sequence[RoundRow]) -> np.ndarray:
            return count + np.bincount(
                np.concatenate([row.cohort.site[row.cohort.age == 0] for row in rows]), minlength=num_sites
            )

        count = history.running(("fedzero rounds", num_sites), np.zeros(num_sites), add)
        above = np.maximum(count - count.mean(), 1.0)
        return rng.uniform(size=num_sites) >= above**-self.fairness


@POLICIES.add
class FedQueue(Policy):
    """FedQueue (arXiv 2605.02125), the work of a site by the wait in its queue: all sites take part, and each trains
    what fits between its expected wait and the end of a round. Its rounds are `quorum` with `num` = all sites and
    `longest_s` = 1.15 `round_s`. Its learning rate of each site is left out: all sites have that of [train]."""

    kind = "fedqueue"
    round_s: Seconds = Field(3600.0, gt=0)
    """t_sync: length of a round."""
    margin_s: Seconds = Field(60.0, ge=0)
    """Part of it that is left free."""
    least_work: int = Field(20, ge=1, le=MOST_LOCAL_WORK)
    """Least local work, as a multiple of that of [train]; there are steps in the paper (train.local_steps = 1)."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """All N sites, with max(floor(J / c), least) for J = max(0.5 s, t_sync - wait - margin)."""
        budget_s = np.maximum(0.5, self.round_s - sites.queue_s - self.margin_s)
        work = np.maximum(work_within(sites, budget_s), self.least_work)
        return Decision(np.arange(len(sites)), local_work=work)


@POLICIES.add
class WhileClean(Policy):
    """Every idle site whose windows are open, or else every idle site: the rule of the curtailment pilot (arXiv
    2602.22760), whose windows are in [availability]."""

    kind = "while-clean"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The sites with power, by number."""
        for those in (sites.power_fraction > 0, np.broadcast_to(sites.idle, len(sites))):
            if those.any():
                return Decision(np.flatnonzero(those))
        return Decision(np.arange(len(sites)))
