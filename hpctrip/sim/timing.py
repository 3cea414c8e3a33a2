"""The virtual clock: how long sites compute and a round takes (paper Eqs. 4, 7; Sec. 5.1).

`Timing` charges a round that happened, from the true power over time; a power change within a round is integrated
exactly (`elapsed_s`). `return_s`, `prefix_round_s` and `prefix_spending` estimate a round before it happens, from the
aggregator's view, in which power stays as it is. Shapes: N sites, k sites in the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.series import never, spans
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.sim.quantities import QUANTITIES
from hpctrip.sim.rounds import Status
from hpctrip.sim.view import SiteView

LONGEST_ROUND_S = 10 * 365 * 86400.0
"""Ten simulated years: a round that takes longer has no power or a wrong unit. Below, the clock's steps stay exact."""
MOST_STEPS = 100_000
"""Changes of power within one round: a year of five-minute steps, which take some seconds to add up."""
_BLOCK = 2**17
"""Numbers of sites times prefixes that are computed at once."""


class Timing(Component):
    """Simulated duration of a round from power and delay (Eq. 7 and its interpretations)."""

    clock: Literal["straggler", "max-plus-max", "mean-power", "aggregate-throughput"] = "straggler"
    """Duration of a round (Eq. 7). straggler: until the last site of the cohort finishes, max (compute_i + L_i).
    max-plus-max: max compute + max L. mean-power: c / mean P + max L. aggregate-throughput: the cohort's summed
    throughput shares a fixed amount of work, that of all N sites: W / sum P + max L, so more sites mean shorter
    rounds."""
    power: Literal["integrated", "frozen"] = "integrated"
    """integrated: compute_i solves "integral of P_i(t) dt from the round's start = c_i"; frozen: c_i / P_i(start)."""
    compute: Literal["modelled", "measured"] = "modelled"
    """c_i: modelled = seconds_per_sample * visited samples, the same on every machine; measured = this device's wall
    time, so that trajectories depend on the machine."""
    seconds_per_sample: Seconds = Field(0.02, gt=0)
    """Modelled compute time of one training sample at full power. The paper does not state it."""

    def check_own_times(self, who: str, instead: str) -> None:
        """InputError where a site has no time of its own before it has trained, which `who` needs."""
        if (self.clock, self.compute) != ("straggler", "modelled"):
            raise InputError(
                f'timing: clock = "{self.clock}", compute = "{self.compute}"',
                f"gives a site no time of its own before it has trained, which {who} needs",
                f'use clock = "straggler" and compute = "modelled", or {instead}',
            )

    def elapsed_compute_s(
        self,
        throughput: Callable[[float], np.ndarray],
        next_change_s: Callable[[float], float],
        start_s: float,
        work_s: np.ndarray,
        total_work_s: float,
        deadline_s: float = np.inf,
        wait_s: np.ndarray | float = 0.0,
    ) -> np.ndarray:
        """Seconds [k] that the cohort computes in the round that starts at `start_s`; inf where it is not done after
        `deadline_s`. Each site begins after its `wait_s` [k].

        `throughput(t)` is the cohort's throughput fraction [k], `next_change_s(t)` the next time at which it may
        change; `work_s` is c_i [k]; `total_work_s` is W, the sum of c_i over all N sites. Raises InputError where there
        is no deadline and a site has no power for ten simulated years.
        """
        if self.clock in SHARED_WORK:
            wait_s = 0.0  # only sites with a time of their own wait (`check_own_times`)
        if self.clock == "mean-power":
            rate, work = lambda t: throughput(t).mean(keepdims=True), work_s.mean(keepdims=True)
        elif self.clock == "aggregate-throughput":
            rate, work = lambda t: throughput(t).sum(keepdims=True), np.array([total_work_s])
        else:
            rate, work = throughput, work_s
        if self.power == "frozen":
            next_change_s = never
        return np.broadcast_to(
            elapsed_s(rate, next_change_s, start_s, work, deadline_s, wait_s), work_s.shape
        )

    def makespan_s(
        self, compute_s: np.ndarray, comm_s: np.ndarray, status: np.ndarray, deadline_s: float = np.inf
    ) -> float:
        """Length of a round whose sites took so long, arrays [k]: Eq. 7, or the deadline where a site that was asked
        is missing or no site could be asked."""
        asked = status != Status.OUT
        if not asked.any() or ((status == Status.LATE) | (status == Status.LOST)).any():
            return deadline_s
        compute_s, comm_s = compute_s[asked], comm_s[asked]
        straggler = self.clock == "straggler"
        length_s = (compute_s + comm_s).max() if straggler else compute_s.max() + comm_s.max()
        return float(min(length_s, deadline_s))


def elapsed_s(
    rate: Callable[[float], np.ndarray],
    next_change_s: Callable[[float], float],
    start_s: float,
    work_s: np.ndarray,
    horizon_s: float = np.inf,
    wait_s: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Seconds [m] after which the integral of rate_i(t) dt from `start_s` + `wait_s` reaches work_i [m]; inf where that
    is later than `horizon_s` after `start_s`.

    `rate(t)`, [m], is constant between the times that `next_change_s(t)` gives, so the work of each part of
    the round is its length times the rate within it: a change of power counts from the moment at which it happens.
    """
    left = np.array(work_s, dtype=np.float64)
    elapsed = np.zeros_like(left)
    for now_s, end_s, at_s in islice(spans(start_s, next_change_s), MOST_STEPS):
        power = rate(at_s)
        span_s = np.maximum(end_s - np.maximum(now_s, start_s + wait_s), 0.0)  # of those that have begun
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(left > 0, left / power, 0.0)
        done = needed <= span_s if np.isfinite(end_s) else np.isfinite(needed)
        elapsed += np.where(done, needed, span_s)
        in_time = done & (elapsed + wait_s <= horizon_s)
        if done.all() or end_s - start_s >= horizon_s < np.inf:
            return np.where(in_time, elapsed, np.inf)
        if end_s - start_s > LONGEST_ROUND_S:
            break
        left = np.where(done, 0.0, left - power * span_s)
    else:
        if (idle := int((left == work_s)[left > 0].sum())) > 0:
            raise InputError(
                "power",
                f"{idle} of the {len(left)} site(s) of the cohort have no power from {start_s:g} s to {end_s:g} s",
                "check power.unit and power.capacity_w, or set faults.deadline_s",
            )
        raise InputError(
            "power",
            f"changes more than {MOST_STEPS:,} times in the round that starts at {start_s:g} s, up to {end_s:g} s",
            "use a power trace of longer steps, rarer outages (faults.mtbf_s), or less work a round",
        )
    raise InputError(
        "power",
        f"{int((~done).sum())} site(s) of the cohort have no power for the rest of the simulation",
        "raise the power fractions, let throughput.kind use less power per GPU, or set faults.deadline_s",
    )


def checked_length_s(round: int, length_s: float) -> float:
    """The length of a round. InputError where it is beyond all that an input can mean."""
    if length_s > LONGEST_ROUND_S:
        raise InputError(
            "timing",
            f"round {round} would last {length_s:g} s, more than ten simulated years",
            "lower timing.seconds_per_sample, a round's work or network.update_bytes, or set faults.deadline_s",
        )
    return length_s


def prefix_round_s(sites: SiteView, order: np.ndarray, clock: str) -> np.ndarray:
    """T(k) for every prefix of `order` [n]: seconds that a round of its first k sites takes, [n]; inf without power.

    `clock` is an interpretation of Eq. 7 (`timing.clock`). "mean-power" is Algorithm 1's own estimate, c / mean P +
    max L (Sec. 3.3), where c is the mean work of these k sites and P what their power is worth. Power is taken to stay
    as it is seen. No transfer ends before all k have passed the aggregator's link, where the view knows of one. No
    round is longer than its deadline, and one in which a site misses it is not shorter.
    """
    all_back_s, deadline_s = _prefix_back_s(sites, order, clock), sites.deadline_s
    if np.isinf(deadline_s):
        return all_back_s
    is_cut = prefix_in_time(sites, order) < np.arange(1, len(order) + 1)
    return np.where(is_cut, deadline_s, np.minimum(all_back_s, deadline_s))


def prefix_in_time(sites: SiteView, order: np.ndarray) -> np.ndarray:
    """Number of the first k sites of `order` [n] that are back by the round's deadline, for every k, [n]; k where there
    is none."""
    if np.isinf(sites.deadline_s):
        return np.arange(1, len(order) + 1)
    blocks = _prefixes(sites, order)
    return np.concatenate([((back_s <= sites.deadline_s) & is_in).sum(1) for _, is_in, _, back_s in blocks])


def _prefixes(
    sites: SiteView, order: np.ndarray
) -> Iterator[tuple[slice, np.ndarray, np.ndarray, np.ndarray]]:
    """For every k from 1 to n, in blocks of m of them: the block, which of the sites of `order` [n] are among the first
    k, [m, n] bool, the seconds that each of these computes and those until it is back, its wait in a queue included,
    [m, n]; inf without power. Deadlines are not counted."""
    n = len(order)
    own_s, alone_s = np.broadcast_to(_own_compute_s(sites)[order], (n, n)), sites.comm_s[order]
    queue_s = _queue_s(sites)[order]
    if sites.clock in SHARED_WORK:
        own_s = np.broadcast_to(prefix_compute_s(sites, order, sites.clock)[:, None], (n, n))
    size = max(1, _BLOCK // n)
    for first in range(0, n, size):
        block = slice(first, min(first + size, n))
        k = np.arange(block.start + 1, block.stop + 1)[:, None]
        is_in, compute_s = np.arange(n) < k, own_s[block]
        comm_s = np.maximum(alone_s, k * sites.link_s)
        if sites.region is not None:
            comm_s = np.maximum(comm_s, _num_in_region(sites.region[order], block) * sites.uplink_s[order])
        yield block, is_in, compute_s, queue_s + compute_s + comm_s


def _prefix_back_s(sites: SiteView, order: np.ndarray, clock: str) -> np.ndarray:
    """Seconds until the first k sites of `order` [n] are all back, for every k, [n], by a clock as in
    `prefix_round_s`."""
    k = np.arange(1, len(order) + 1)
    alone_s = sites.comm_s[order]
    if sites.all_reduce_s is not None:
        comm_s = sites.all_reduce_s(order)
    else:
        comm_s = np.maximum(np.maximum.accumulate(alone_s), k * sites.link_s)
        comm_s = np.maximum(comm_s, _through_uplinks_s(sites, order, np.zeros(len(order))))
    if clock in SHARED_WORK:
        return prefix_compute_s(sites, order, clock) + comm_s
    after_s = (_queue_s(sites) + _own_compute_s(sites))[order]
    if clock == "max-plus-max" or sites.all_reduce_s is not None:
        return np.maximum.accumulate(after_s) + comm_s
    together_s = np.maximum.accumulate(after_s) + k * sites.link_s
    together_s = np.maximum(together_s, _through_uplinks_s(sites, order, after_s))
    return np.maximum(np.maximum.accumulate(after_s + alone_s), together_s)


def _through_uplinks_s(sites: SiteView, order: np.ndarray, compute_s: np.ndarray) -> np.ndarray:
    """Seconds until the first k sites of `order` [n], which compute so long [n], have passed the uplinks that the sites
    of a region share, for every k, [n]; 0 where none is shared."""
    if sites.region is None:
        return np.zeros(len(order))
    _, region = np.unique(sites.region[order], return_inverse=True)
    # by region, then in the order; so the largest of "region, rank of its seconds" so far is one of the same region
    of_region, num = np.argsort(region, kind="stable"), np.arange(len(order))
    rank = np.empty(len(order), dtype=np.int64)
    rank[by_time := np.argsort(compute_s, kind="stable")] = num
    highest = np.maximum.accumulate(region[of_region] * len(order) + rank[of_region]) % len(order)
    number = num + 1 - np.searchsorted(region[of_region], region[of_region])
    passed_s = np.empty(len(order))
    passed_s[of_region] = compute_s[by_time][highest] + number * sites.uplink_s[order][of_region]
    return np.maximum.accumulate(passed_s)


def _num_in_region(region: np.ndarray, block: slice) -> np.ndarray:
    """How many of the first k sites, in these regions [n], are in the region of each site, [m, n], for the m values
    k - 1 of a block."""
    _, region = np.unique(region, return_inverse=True)
    before = np.bincount(region[: block.start], minlength=region.max() + 1)
    among = region[block, None] == np.arange(region.max() + 1)
    return (before + np.cumsum(among, axis=0))[:, region]


SHARED_WORK = ("mean-power", "aggregate-throughput")
"""The interpretations of Eq. 7 by which all sites of a cohort compute equally long."""


def prefix_compute_s(sites: SiteView, order: np.ndarray, clock: str) -> np.ndarray:
    """Seconds that every site of the first k of `order` [n] computes by a clock of SHARED_WORK, [n]; inf without
    power."""
    k, total = np.arange(1, len(order) + 1), np.cumsum(sites.throughput_fraction[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        if clock == "mean-power":
            return prefix_mean(sites.work_s[order]) / (total / k)
        return sites.work_s.sum() / total


def prefix_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the first k of `values` [n], for every k, [n]; exact where all are equal."""
    return values[0] + np.cumsum(values - values[0]) / np.arange(1, len(values) + 1)


def return_s(sites: SiteView, num_sites: int = 1) -> np.ndarray:
    """Return time of each site in a cohort of `num_sites`, c_i / P_i + L_i and its expected wait in a queue, in seconds
    [N], where L_i is at least the time that the cohort needs of the aggregator's link; inf where the site has no power
    or would miss the round's deadline. With the aggregate-throughput clock all sites share one work, and it is L_i."""
    comm_s = np.maximum(sites.comm_s, num_sites * sites.link_s)
    if sites.region is not None:  # as if each region had its share of the cohort
        share = np.bincount(sites.region)[sites.region] / len(sites)
        comm_s = np.maximum(comm_s, np.maximum(1, num_sites * share) * sites.uplink_s)
    if sites.clock == "aggregate-throughput":
        back_s = np.where(sites.throughput_fraction > 0, comm_s, np.inf)
    else:
        back_s = _queue_s(sites) + _own_compute_s(sites) + comm_s
    return np.where(back_s <= sites.deadline_s, back_s, np.inf)


def prefix_spending(sites: SiteView, order: np.ndarray) -> dict[str, np.ndarray]:
    """The amounts of `QUANTITIES` that a round of every prefix of `order` [n] spends: {their columns: [n]}, NaN where
    they are not known, inf where the round would never end. Sites compute as long as `timing.clock` says,
    then wait until its round is over or, where they are released, until their update is sent; powers stay as they are
    seen."""
    rates = {quantity.column: quantity.per_joule(sites)[order] for quantity in QUANTITIES}
    round_s = prefix_round_s(sites, order, sites.clock)
    shares_uplinks = sites.released and sites.region is not None
    none_is_late = np.isinf(sites.deadline_s) or np.array_equal(
        round_s, _prefix_back_s(sites, order, sites.clock)
    )
    if none_is_late and not shares_uplinks:
        return _spending_of_all(sites, order, rates)
    blocks = list(_spending_by_deadline(sites, order, round_s, rates))
    return {name: np.concatenate([block[name] for block in blocks]) for name in rates}


def _spending_by_deadline(
    sites: SiteView, order: np.ndarray, lengths_s: np.ndarray, rates: dict[str, np.ndarray]
) -> Iterator[dict[str, np.ndarray]]:
    """`prefix_spending` of rounds of these `lengths_s` [n], none longer than its deadline, in blocks of prefixes: what
    one spends depends on the others."""
    busy_w, waiting_w = (np.broadcast_to(w, len(sites))[order] for w in (sites.busy_w, sites.waiting_w))
    queue_s, paused_s = _queue_s(sites)[order], _paused_s(sites)[order]
    for block, is_in, compute_s, back_s in _prefixes(sites, order):
        round_s = lengths_s[block, None]
        begin_s = np.minimum(queue_s, round_s)
        computed_s = np.minimum(queue_s + compute_s, round_s)
        until_s = np.minimum(back_s, round_s) if sites.released else round_s
        waits_s = np.where(begin_s < round_s, until_s - computed_s, 0.0)
        sent_j = np.where(queue_s + compute_s <= round_s, sites.comm_energy_j, 0.0)
        busy_s = np.maximum(computed_s - begin_s - paused_s, 0.0)
        joules = busy_w * busy_s + waiting_w * waits_s + sent_j
        yield {name: np.where(is_in, joules * rate, 0.0).sum(1) for name, rate in rates.items()}


def _spending_of_all(
    sites: SiteView, order: np.ndarray, rates: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """`prefix_spending` of rounds that wait for every site; `rates` [n] are amounts per joule."""
    busy_w, waiting_w = (np.broadcast_to(w, len(sites))[order] for w in (sites.busy_w, sites.waiting_w))
    computing_w = busy_w if sites.released else busy_w - waiting_w  # what waits anyway counts below
    own_j = np.full(len(order), sites.comm_energy_j)
    shared: list[tuple[np.ndarray, np.ndarray]] = []  # ([n] seconds of the first k, [n] watts of each site)
    if sites.clock in SHARED_WORK:
        shared.append((prefix_compute_s(sites, order, sites.clock), computing_w))
    else:
        own_s = np.where(sites.throughput_fraction > 0, _busy_s(sites), 0.0)[order]
        own_j = computing_w * own_s + own_j
    if not sites.released:
        shared.append((prefix_round_s(sites, order, sites.clock), waiting_w))
        # a job in a queue holds no node, nor does one of a site that is released
        own_j = own_j - waiting_w * (_queue_s(sites) + _paused_s(sites))[order]

    def spent(per_joule: np.ndarray) -> np.ndarray:
        total = np.cumsum(own_j * per_joule)
        if sites.all_reduce_s is not None:
            total = total - sites.comm_energy_j * prefix_mean(per_joule)
        if sites.released:
            total = total + _prefix_comm(waiting_w * per_joule, sites.comm_s[order], sites.link_s)
        for seconds, watts in shared:
            rate = np.cumsum(watts * per_joule)
            with np.errstate(invalid="ignore"):  # inf * 0
                total = total + np.where(np.isinf(seconds) & ~np.isnan(rate), np.inf, seconds * rate)
        return total

    return {name: spent(rate) for name, rate in rates.items()}


def _queue_s(sites: SiteView) -> np.ndarray:
    """Seconds that each site's job is expected to wait in a queue, [N]."""
    return np.broadcast_to(sites.queue_s, len(sites))


@np.errstate(invalid="ignore")  # inf - inf
def _own_compute_s(sites: SiteView) -> np.ndarray:
    """Seconds in which each site does its own work c_i, with announced pauses, [N]; inf without power."""
    now_s, left_s = _queue_s(sites), _busy_s(sites)
    for from_s, until_s in sites.pauses_s:
        span_s = np.maximum(from_s - now_s, 0.0)
        is_paused = span_s < left_s
        now_s = np.where(is_paused, np.maximum(now_s + span_s, until_s), now_s + left_s)
        left_s = np.where(is_paused, left_s - span_s, 0.0)
    return now_s + left_s - _queue_s(sites) if len(sites.pauses_s) else left_s


@np.errstate(invalid="ignore")  # inf - inf
def _paused_s(sites: SiteView) -> np.ndarray:
    """Seconds of announced pauses between the beginning and the end of each site's work, [N]; 0 without power."""
    return np.nan_to_num(_own_compute_s(sites) - _busy_s(sites))


def _busy_s(sites: SiteView) -> np.ndarray:
    """Seconds that each site computes if it has its own work c_i and is never stopped, [N]; inf without power."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sites.work_s > 0, sites.work_s / sites.throughput_fraction, 0.0)


def _prefix_comm(weights: np.ndarray, alone_s: np.ndarray, link_s: float) -> np.ndarray:
    """Sum of the weights [n] times the communication times of the first k sites, max(`alone_s`, k `link_s`), [n]."""
    n = len(alone_s)
    if link_s == 0:
        return np.cumsum(weights * alone_s)
    # number of sites from which on the aggregator's link, not the site's own path, is what takes longest
    bound_from = np.maximum(np.ceil(np.minimum(alone_s / link_s, n + 1)), np.arange(1, n + 1)).astype(
        np.int64
    )

    def bound(values: np.ndarray) -> np.ndarray:
        return np.cumsum(np.bincount(bound_from, values, n + 2))[1 : n + 1]

    alone = np.cumsum(weights * alone_s) - bound(weights * alone_s)
    return alone + np.arange(1, n + 1) * link_s * bound(weights)
