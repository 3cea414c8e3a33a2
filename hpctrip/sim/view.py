"""The aggregator's view of the sites: all that a policy may look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.text import unknown_name


@dataclass(frozen=True)
class SiteView:
    """The profiler's view now, never the truth. Arrays [N]."""

    power_fraction: np.ndarray
    """P_i, in [0, 1]."""
    throughput_fraction: np.ndarray
    """Throughput at that power, in [0, 1], relative to that at full power."""
    comm_s: np.ndarray
    """L_i (Eq. 3) of each site alone, in seconds."""
    distance_m: np.ndarray
    """d_i, in metres."""
    work_s: np.ndarray
    """c_i, seconds at full power of one round of what [train] says."""
    update_bytes: float
    """M, the simulated payload of one update as it travels up (compressed), in bytes."""
    available_s: np.ndarray = np.float64(np.inf)
    """Seconds until the first announced fall of a site's availability ([availability]); inf: none is announced."""
    pauses_s: Sequence[np.ndarray] = ()
    """Seconds until its work stands still, and until it goes on, [2, N], for one announced release in the middle of a
    round after another; inf: no more."""
    queue_s: np.ndarray = np.float64(0)
    """Seconds that a site's job is expected to wait in a queue before it computes: half the site's last wait, half what
    was expected before it (FedQueue, arXiv 2605.02125); at first 0."""
    link_s: float = 0.0
    """Seconds that one site's transfer takes of the aggregator's own link, which the cohort shares; 0: no bound."""
    region: np.ndarray | None = None
    """Number of each site's region, where the sites of a region share its uplink."""
    uplink_s: np.ndarray = np.float64(0)
    """Seconds that a site's transfer takes of its region's uplink."""
    all_reduce_s: Callable[[np.ndarray], np.ndarray] | None = None
    """Where sites exchange their updates among themselves: the seconds that the first k sites of an order [n] take, for
    every k, [n]. `comm_s` is then what all sites take."""
    clock: str = "straggler"
    """The interpretation of Eq. 7 by which the clock will charge the round (`timing.clock`)."""
    deadline_s: float = math.inf
    """Seconds after its start at which an update is given up (`faults.deadline_s`), so that a synchronous round ends;
    inf: all are waited for."""
    busy_w: np.ndarray = np.float64(0)
    """Watts that a site with that power draws while it computes."""
    waiting_w: np.ndarray = np.float64(0)
    """Watts that it draws while it waits."""
    released: bool = False
    """Whether it waits only until its update has been sent (`accounts.waiting`), not for the round's end."""
    comm_energy_j: float = 0.0
    """Energy of the network for one site's transfer; 1 - 1/k of it where k sites exchange among themselves."""
    g_per_kwh: np.ndarray = np.float64(np.nan)
    """Grams of CO2 for a kilowatt-hour at the site, now; NaN: not known."""
    cost_per_kwh: np.ndarray = np.float64(np.nan)
    """Money for a kilowatt-hour at the site, now; NaN: not known."""
    num_samples: np.ndarray = np.int64(0)
    """Training samples that each site holds."""
    idle: np.ndarray = np.True_
    """Whether a site may start: it is not under way since an earlier round. It may be out or without power.
    To policies, a site that is not idle has none."""
    labels: np.ndarray | None = None
    """`label_counts`, where the policy sees them."""
    full_power_w: float = 0.0
    """Power of a site whose GPUs all run at full speed, the mean of the sites."""
    clock_s: float = 0.0
    """Simulated time."""
    target_accuracy: float = math.nan
    """The accuracy that is to be reached; NaN: none."""

    def __len__(self) -> int:
        return len(self.power_fraction)

    def of_idle(self) -> SiteView:
        """The view as policies get it: a site that is under way has no power for another start."""
        if np.all(self.idle):
            return self
        power, throughput = (
            np.where(self.idle, values, 0.0) for values in (self.power_fraction, self.throughput_fraction)
        )
        return replace(self, power_fraction=power, throughput_fraction=throughput)

    @property
    def label_counts(self) -> np.ndarray:
        """Number of labels of each class at each site, [N, classes]. Raises InputError unless the policy sets
        `sees_labels = True`."""
        if self.labels is None:
            hint = "set sees_labels = True in the class of the policy"
            raise InputError("policy", "uses sites.label_counts without having asked for it", hint)
        return self.labels

    def __getattr__(self, name: str) -> Any:
        """Refuse an unknown name with the names that exist."""
        names = [*self.__dataclass_fields__, "label_counts"]
        raise AttributeError(f"sites have no {name!r}; {unknown_name(name, names)}")
