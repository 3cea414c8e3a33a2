"""Links by regions: a table of round-trip times and bandwidths, and what a synchronisation over them costs.

Shapes: N sites, R regions, n sites in some order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import islice, permutations
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.series import spans
from hpctrip.base.text import unknown_name
from hpctrip.base.units import Seconds
from hpctrip.config.component import config_key
from hpctrip.config.identity import Added
from hpctrip.config.sources import Reads
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.faults import Faults
from hpctrip.sim.network.base import NETWORKS, Links, Network, Transfers
from hpctrip.sim.network.link_table import Matrix, MatrixSeries, read_matrix
from hpctrip.sim.sites import Sites, numbered
from hpctrip.sim.times import Moment, TimeZone, moment_us
from hpctrip.sim.timing import MOST_STEPS

MOST_EXACT = 8
"""Regions up to which all rings are compared."""


@NETWORKS.add
class MatrixNetwork(Network):
    """Links between regions, or between sites, in a CSV file with a row for each link: `from` and `to` (names of
    regions), `rtt_ms` (`_s`: round-trip time) and `bandwidth_gbps` (`_mbps`, `_bps`: bits per second).

    A row holds from one region to the other; where they are the same, it is the link of two sites in the region. A
    transfer takes half the round-trip time and its bytes by the bandwidth.

    With a column of times, `time` (ISO 8601) or `time_s`, the rows of a link are what was measured then: each holds
    until the next one of this link, and a single one always. All start again when the first of them ends.
    """

    kind = "matrix"
    path: Annotated[PathName, Reads()]
    """The CSV file."""
    aggregator: str
    """Region of the aggregator."""
    site_column: str = "region"
    """Column of the sites' file that names the region of a site; "name": each site is a region."""
    symmetric: bool = False
    """Whether each row holds both ways; false: each direction has a row of its own, where it is needed."""
    shared_uplinks: bool = False
    """Whether the sites of a region share its link to the aggregator's region, as all sites share the aggregator's own:
    transfers of k sites that begin together take at least k M / B, others queue. False: each has this bandwidth."""
    exchange: Literal["star", "ring", "two-level"] = "star"
    """How updates are averaged. star: each site sends to the aggregator. ring: the sites of a round pass them on in a
    ring, 2 (1 - 1/k) (M / B + latency), where B is the slowest link of the best ring and the latency that around it;
    the sites of a region are neighbours in it. two-level: each site sends to a server in its region, which sends one
    update to the aggregator; a clock only, without training. A ring brings the mean back to the sites, whether or not
    `round_trip` is set."""

    start: Added[Moment | None] = None
    """Time of the table at which simulated time starts, in UTC unless it has an offset. Absent: the `start` of another
    dated series (carbon, price, power), or else the first time common to all."""
    timezone: Added[TimeZone] = "UTC"
    """Time zone of times without an offset, e.g. "Europe/Madrid"."""
    longest_gap_s: Added[Seconds] = Field(6 * 3600.0, gt=0)
    """Longest time between two rows of a link; a longer gap is an error."""

    @model_validator(mode="after")
    def _has_such_links(self) -> Self:
        shared = self.shared_uplinks or self.aggregator_bandwidth_bps is not None
        if self.exchange != "star" and shared:
            raise ValueError(
                f'exchange = "{self.exchange}" uses the links of the table only: leave out shared_uplinks and '
                "aggregator_bandwidth_bps, which are of a star"
            )
        return self

    def check(self, leaves_flights: bool, faults: Faults) -> None:
        """A ring waits for all of its sites, and a region's server for all of its region."""
        key = f'network.exchange = "{self.exchange}"'
        if leaves_flights and self.exchange != "star":
            raise InputError(key, "is for updates that are sent together", 'use rounds.kind = "synchronous"')
        if self.exchange == "ring" and (faults.deadline_s is not None or faults.late_fraction):
            problem = "waits for all sites of a round: none can be given up or be late alone"
            raise InputError(
                key, problem, "leave out faults.deadline_s and faults.late_fraction, or use a star"
            )

    def check_training(self) -> None:
        """No server of a region is trained with."""
        if self.exchange == "two-level":
            problem = "is a clock only: hpctrip does not train with a server in each region"
            raise InputError(
                'network.exchange = "two-level"', problem, "use hpctrip plan, or a star or a ring"
            )

    def links(self, distance_m: np.ndarray, columns: Mapping[str, np.ndarray]) -> MatrixLinks:
        """By the column `region`. InputError for a region that the table lacks, and for a link that is needed."""
        place = f"network.path = {self.path!r}"
        series = read_matrix(self.path, place, self.symmetric, self.timezone, self.longest_gap_s)
        if self.start is not None:
            if series.calendar is None:
                problem = "needs a table with dates, and several rows of a link"
                raise InputError(f"network.start = {self.start!r}", problem, "leave it out")
            series = replace(series, calendar=replace(series.calendar, start_us=moment_us(self.start)))
        matrix, key = series.of_step(0), config_key("network", self)
        number = {name: i for i, name in enumerate(matrix.regions)}
        if self.aggregator not in number:
            hint = unknown_name(self.aggregator, number)
            raise InputError(
                f"network.aggregator = {self.aggregator!r}", f"is no region of {self.path}", hint
            )
        if "region" not in columns:
            raise InputError(key, "needs the regions of the sites", "give their file a column region")
        if own := [name for name in ("rtt_s", "bandwidth_bps") if name in columns]:
            problem = f"has the links of the sites, and their file has links of their own ({', '.join(own)})"
            raise InputError(key, problem, "leave these columns out")
        names = [str(name) for name in columns["region"]]
        for site, name in enumerate(names):
            if name not in number:
                who = numbered(site, columns.get("name", ()))
                problem = f"has no region {name!r}, which is that of {who}"
                raise InputError(place, problem, unknown_name(name, number))
        region, home = np.array([number[name] for name in names]), number[self.aggregator]
        for start, end in self._needed(region, home):
            if np.isnan(matrix.latency_s[start, end]):
                problem = (
                    f"has no row from {matrix.regions[start]!r} to {matrix.regions[end]!r}, which is needed"
                )
                back = not np.isnan(matrix.latency_s[end, start])
                hint = "add it" + ", or set network.symmetric = true if each row holds both ways" * back
                raise InputError(place, problem, hint)
        return self.links_over(series, region, home)

    def links_over(self, series: MatrixSeries, region: np.ndarray, home: int) -> MatrixLinks:
        """The links of sites in these regions [N]; `home` is that of the aggregator."""
        matrix = series.at(0.0)
        of_region = matrix.bandwidth_bps[:, home]
        if self.exchange == "ring":
            of_region = np.nan_to_num(matrix.bandwidth_bps).max(axis=1)
        shared_bps = self.aggregator_bandwidth_bps or np.inf
        own = matrix.latency_s[region, home], of_region[region], shared_bps, self.round_trip
        return MatrixLinks(*own, series, region, home, self)

    def _needed(self, region: np.ndarray, home: int) -> list[tuple[int, int]]:
        """The links that are used, as pairs of regions, for sites in these regions [N]."""
        used, num_sites = (values.tolist() for values in np.unique(region, return_counts=True))
        if self.exchange == "ring":
            within = [(one, one) for one, number in zip(used, num_sites, strict=True) if number > 1]
            return within + [(one, other) for one in used for other in used if one != other]
        up = [(one, home) for one in used]
        if self.exchange == "two-level":
            up += [(one, one) for one in used]
        return up + [(end, start) for start, end in up] if self.round_trip else up


@dataclass(frozen=True)
class MatrixLinks(Links):
    """Links of N sites in regions. `propagation_s` and `bandwidth_bps` are those to the aggregator; in a ring the
    bandwidth is that of the fastest link from the site's region."""

    series: MatrixSeries
    region: np.ndarray
    """Number of each site's region, [N]."""
    home: int
    """That of the aggregator."""
    network: MatrixNetwork

    @cached_property
    def _rings(self) -> Callable[[int, tuple[int, ...]], tuple[np.ndarray, np.ndarray]]:
        """`best_rings` in a step through some regions, of which those of the last rounds are remembered."""
        return lru_cache(64)(lambda step, regions: best_rings(self.series.of_step(step), regions))

    @property
    def calendar(self) -> Calendar | None:
        """Dates of the table."""
        return self.series.calendar

    def on(self, calendar: Calendar) -> MatrixLinks:
        """The same links cut to a calendar."""
        return self.network.links_over(self.series.on(calendar), self.region, self.home)

    @property
    def all_reduces(self) -> bool:
        """Whether the exchange is a ring."""
        return self.network.exchange == "ring"

    def transfer_s(
        self, sites: Sites, start_s: np.ndarray | float, up_bytes: float, down_bytes: float
    ) -> Transfers:
        """In a ring the time of these sites together, from the last of `start_s` on; else by the links of their
        regions."""
        if self.all_reduces:
            region = self.region[sites]
            whole_s, latency_s = (partial(self._ring_s, region, size) for size in (up_bytes, 0.0))
            return Transfers(
                np.repeat(self._duration_s(whole_s, np.max(start_s), latency_s), len(region)), 0.0
            )
        region, home, regions = self.region[sites], self.home, np.arange(len(self.series.of_step(0).regions))
        start_s = 0.0 if self.series.is_steady else start_s
        # by region, and by site where each starts at a time of its own
        from_region, of_site = (regions, region) if np.ndim(start_s) == 0 else (region, slice(None))
        ways = [(from_region, home, up_bytes), (home, from_region, down_bytes)][: 1 + self.round_trip]
        is_home = from_region == home
        if self.network.exchange == "two-level":  # the server of the aggregator's region is the aggregator
            within_s = self._in_turn_s(
                [(from_region, from_region, num_bytes) for *_, num_bytes in ways], start_s
            )
            alone_s = within_s + np.where(is_home, 0.0, self._in_turn_s(ways, start_s + within_s))
        else:
            alone_s = self._in_turn_s(ways, start_s)
        link_s = 8 * sum(num_bytes for *_, num_bytes in ways) / self.aggregator_bandwidth_bps
        if not self.network.shared_uplinks:
            return Transfers(alone_s[of_site], link_s)
        num = np.bincount(region, minlength=len(regions))[from_region]

        def uplink_s(clock_s: float, num: np.ndarray | int = 1) -> np.ndarray:
            bandwidth_bps = self.series.at(clock_s).bandwidth_bps
            taken_s = sum(8 * num_bytes / bandwidth_bps[start, end] for start, end, num_bytes in ways)
            return np.where(is_home, 0.0, num * taken_s)

        each_s, all_s = (self._duration_s(partial(uplink_s, num=n), start_s) for n in (1, num))
        return Transfers(alone_s[of_site], link_s, region, each_s[of_site], all_s[of_site])

    def _in_turn_s(
        self, ways: Sequence[tuple[Sites, Sites, float]], start_s: np.ndarray | float
    ) -> np.ndarray:
        """Seconds of transfers over `ways`, one after the other: from regions, to regions, and their bytes."""
        total_s = 0.0
        for way in ways:
            whole_s, latency_s = (
                lambda clock_s, hop=hop: self.series.at(clock_s).seconds(*hop)
                for hop in (way, (*way[:2], 0.0))
            )
            total_s = total_s + self._duration_s(whole_s, start_s + total_s, latency_s)
        return total_s

    def _duration_s(
        self,
        whole_s: Callable[[float], np.ndarray],
        start_s: np.ndarray | float,
        latency_s: Callable[[float], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Seconds that transfers take which start then, at one time or each [m] at its own. `whole_s(t)` are those over
        links as at the time t, and `latency_s(t)` those of them in which no bits are sent (default: none), [m].

        The latency is that of the start; between two changes the bits of that span are sent. InputError where there are
        too many changes.
        """
        if self.series.is_steady:
            return whole_s(0.0)
        start_s, left, sent_s = np.asarray(start_s), 1.0, 0.0
        at_once_s = delay_s = in_one = np.float64(0)
        first_s = float(np.nanmin(start_s))  # NaN: by a link that the table lacks
        for now_s, end_s, at_s in islice(spans(first_s, self.series.next_change_s), MOST_STEPS):
            seconds, latency = whole_s(at_s), latency_s(at_s) if latency_s else 0.0
            bits_s, span_s = seconds - latency, np.maximum(end_s - np.maximum(now_s, start_s), 0.0)
            waits = start_s >= end_s
            goes_on = waits | (left * bits_s > span_s)
            begins = start_s >= now_s  # in this span or a later one, which then counts
            at_once_s, delay_s = np.where(begins, seconds, at_once_s), np.where(begins, latency, delay_s)
            in_one = np.where(begins, ~goes_on, in_one)
            sent_s = sent_s + np.where(goes_on, span_s, left * bits_s)
            with np.errstate(divide="ignore", invalid="ignore"):
                left = np.where(waits, left, np.where(goes_on, left - span_s / bits_s, 0.0))
            if not goes_on.any():
                return np.where(in_one, at_once_s, delay_s + sent_s)
        problem = f"changes more than {MOST_STEPS:,} times in a transfer that starts at {first_s:g} s"
        raise InputError(f"network.path = {self.network.path!r}", problem, "check network.update_bytes")

    def _ring_s(self, region: np.ndarray, num_bytes: float, clock_s: float) -> np.ndarray:
        """Seconds in which n sites of these regions [n] exchange their updates, [1]: the last of `all_reduce_s`."""
        matrix, n = self.series.at(clock_s), len(region)
        num = np.bincount(region, minlength=len(matrix.regions))
        first = np.full(len(num), n)  # place of the first site of each region
        first[region[::-1]] = np.arange(n)[::-1]
        regions = first.argsort(kind="stable")[: np.count_nonzero(num)]
        bandwidth_bps, latency_s = (
            values[-1] for values in self._rings(self.series.step(clock_s), tuple(regions.tolist()))
        )
        many = np.flatnonzero(num > 1)
        slowest_bps = matrix.bandwidth_bps[many, many].min(initial=bandwidth_bps)
        latency_s = latency_s + ((num[many] - 1) * matrix.latency_s[many, many]).sum()
        return _around_s(np.array([n]), num_bytes, slowest_bps, latency_s)

    def all_reduce_s(self, order: np.ndarray, num_bytes: float, clock_s: float) -> np.ndarray:
        """As in `Links`: `_around_s` for every k."""
        region, matrix = self.region[order], self.series.at(clock_s)
        k = np.arange(1, len(order) + 1)
        first = np.zeros(len(matrix.regions), np.int64)  # k of the first site of each region; 0: none
        first[region[::-1]] = k[::-1]
        is_first = np.zeros(len(order) + 1, dtype=bool)
        is_first[first] = True
        is_first = is_first[1:]
        rings = self._rings(self.series.step(clock_s), tuple(region[is_first].tolist()))
        of_ring = np.cumsum(is_first) - 1
        bandwidth_bps, latency_s = (values[of_ring] for values in rings)
        within_bps = np.where(is_first, np.inf, matrix.bandwidth_bps.diagonal()[region])
        within_s = np.where(is_first, 0.0, matrix.latency_s.diagonal()[region])
        bandwidth_bps = np.minimum(bandwidth_bps, np.minimum.accumulate(within_bps))
        return _around_s(k, num_bytes, bandwidth_bps, latency_s + np.cumsum(within_s))


def _around_s(k: np.ndarray, num_bytes: float, slowest_bps: np.ndarray, latency_s: np.ndarray) -> np.ndarray:
    """2 (1 - 1/k) (M / B + latency): every part of an update passes all links of a ring of k sites but one, twice."""
    return 2 * (1 - 1 / k) * (8 * num_bytes / slowest_bps + latency_s)


def best_rings(matrix: Matrix, regions: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The slowest link in bit/s and the latency of the best ring through the first m of these regions, for every m,
    [len(regions)] each. Best is the ring whose slowest link is fastest, and of several that of the least latency. A
    ring runs one way, over the links of that direction.

    Up to `MOST_EXACT` regions all rings are compared. Beyond, each region is put into the ring of those before it where
    the ring stays best, so that there may be a better one.
    """
    num_regions = len(regions)
    bandwidth_bps, latency_s = (
        values[np.ix_(regions, regions)] for values in (matrix.bandwidth_bps, matrix.latency_s)
    )
    slowest_bps, around_s = np.full(num_regions, np.inf), np.full(num_regions, np.nan_to_num(latency_s[0, 0]))
    ring, few = np.zeros(num_regions + 1, dtype=np.int64), slice(MOST_EXACT)  # a ring ends where it begins
    for num in range(2, num_regions + 1):
        if num <= MOST_EXACT:
            links = _all_rings(num, width := min(num_regions, MOST_EXACT))
            slowest = bandwidth_bps[few, few].take(links).min(axis=0)
            fastest = np.flatnonzero(slowest == slowest.max())
            latency = latency_s[few, few].take(links.T[fastest].copy()).sum(axis=1)
            ring[:num] = links[:, fastest[latency.argmin()]] // width
        else:
            new, start, end = num - 1, ring[: num - 1], ring[1:num]
            links_bps = bandwidth_bps[start, end]
            cut = links_bps.argmin()
            others_bps = np.partition(links_bps, 1)[:2]  # the slowest, and that but for the link that is cut
            slowest = np.minimum(bandwidth_bps[:, new][start], bandwidth_bps[new][end])
            without = min(slowest[cut], others_bps[1])
            slowest = np.minimum(slowest, others_bps[0])
            slowest[cut] = without
            fastest = np.flatnonzero(slowest == slowest.max())
            start, end = start[fastest], end[fastest]
            latency = latency_s[start, new] + latency_s[new, end]
            latency = around_s[num - 2] + latency - latency_s[start, end]
            at = fastest[latency.argmin()] + 1
            ring[at + 1 : num + 1] = ring[at:num].copy()
            ring[at] = new
        slowest_bps[num - 1], around_s[num - 1] = slowest[fastest[0]], latency.min()
    return slowest_bps, around_s


@cache
def _all_rings(num: int, width: int) -> np.ndarray:
    """The links of all rings through regions 0 to `num` - 1, [num, (num - 1)!]: number of the region from which each
    leads, times `width`, plus that to which it leads."""
    rings = np.array([(0, *others) for others in permutations(range(1, num))]).T
    return np.ascontiguousarray(rings * width + np.roll(rings, -1, axis=0))
