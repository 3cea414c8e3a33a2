"""How long a round of a cohort will take, as far as the aggregator can tell beforehand: from its view of the sites."""

from __future__ import annotations

import numpy as np

from hpctrip.base.units import J_PER_KWH
from hpctrip.sim.view import SiteView


def prefix_round_s(sites: SiteView, order: np.ndarray, clock: str) -> np.ndarray:
    """T(k) for every prefix of `order` [n]: seconds that a round of its first k sites takes, [n]; inf without power.

    `clock` is a reading of Eq. 7 (`timing.clock`). "mean-power" is Algorithm 1's own estimate, c / mean P + max L
    (Sec. 3.3), where c is the mean work of these k sites and P what their power is worth. Power is taken to stay as it
    is seen. No transfer ends before all k have passed the aggregator's link, where the view knows of one.
    """
    k = np.arange(1, len(order) + 1)
    throughput, work_s, alone_s = (a[order] for a in (sites.throughput_fraction, sites.work_s, sites.comm_s))
    comm_s = np.maximum(np.maximum.accumulate(alone_s), k * sites.link_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        if clock == "mean-power":
            return prefix_mean(work_s) / (np.cumsum(throughput) / k) + comm_s
        if clock == "aggregate-throughput":
            return sites.work_s.sum() / np.cumsum(throughput) + comm_s
        compute_s = np.where(work_s > 0, work_s / throughput, 0.0)
    if clock == "max-plus-max":
        return np.maximum.accumulate(compute_s) + comm_s
    together_s = np.maximum.accumulate(compute_s) + k * sites.link_s
    return np.maximum(np.maximum.accumulate(compute_s + alone_s), together_s)


def prefix_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the first k of `values` [n], for every k, [n]; exact where all are equal."""
    return values[0] + np.cumsum(values - values[0]) / np.arange(1, len(values) + 1)


def return_s(sites: SiteView) -> np.ndarray:
    """When each site would be back if it were asked alone, c_i / P_i + L_i in seconds [N]; inf where it has no power or
    would miss the round's deadline. Where all share one work (aggregate-throughput), nobody's own compute time matters:
    L_i."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if sites.clock == "aggregate-throughput":
            back_s = np.where(sites.throughput_fraction > 0, sites.comm_s, np.inf)
        else:
            back_s = np.where(sites.work_s > 0, sites.work_s / sites.throughput_fraction, 0.0) + sites.comm_s
    return np.where(back_s <= sites.deadline_s, back_s, np.inf)


def prefix_spending(sites: SiteView, order: np.ndarray) -> dict[str, np.ndarray]:
    """Joules, grams and money of a round of every prefix of `order` [n], as far as they are known: {"energy_j": [n],
    "carbon_g": [n], "cost": [n]}. Sites compute, then wait until the clock's round is over, or where they are released,
    until their update is sent; powers stay as they are seen."""
    work_s, throughput = sites.work_s[order], sites.throughput_fraction[order]
    busy_w, waiting_w = (np.broadcast_to(w, len(sites))[order] for w in (sites.busy_w, sites.waiting_w))
    with np.errstate(divide="ignore", invalid="ignore"):
        compute_s = np.where((work_s > 0) & (throughput > 0), work_s / throughput, 0.0)
    if sites.released:
        own_j = busy_w * compute_s + waiting_w * sites.comm_s[order] + sites.comm_energy_j
    else:
        own_j = (busy_w - waiting_w) * compute_s + sites.comm_energy_j
    round_s = prefix_round_s(sites, order, sites.clock)

    def spent(per_joule: np.ndarray | float) -> np.ndarray:
        own = np.cumsum(own_j * per_joule)
        if sites.released:
            return own
        waiting = np.cumsum(waiting_w * per_joule)
        with np.errstate(invalid="ignore"):
            endless = (round_s == np.inf) & (waiting == 0)  # whoever draws nothing waits for ever, too
            return np.where(endless, np.inf, own + round_s * waiting)

    grams, money = (
        np.broadcast_to(v, len(sites))[order] / J_PER_KWH for v in (sites.g_per_kwh, sites.cost_per_kwh)
    )
    return {"energy_j": spent(1.0), "carbon_g": spent(grams), "cost": spent(money)}
