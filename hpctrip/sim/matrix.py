"""Links by regions: a table of round-trip times and bandwidths, and what a synchronisation over them costs.

Shapes: N sites, R regions, n sites in some order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import permutations
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.text import unknown_name
from hpctrip.config.component import config_key
from hpctrip.config.sources import Reads
from hpctrip.sim.faults import Faults
from hpctrip.sim.network import NETWORKS, Links, Network, Transfers
from hpctrip.sim.sites import Sites, measured, numbered

MOST_EXACT = 8
"""Regions up to which all rings are compared."""


class Matrix(NamedTuple):
    """Links from R regions to R regions; NaN where the table has none."""

    regions: list[str]
    """Names, sorted."""
    latency_s: np.ndarray
    """Half the round-trip time, [R, R]."""
    bandwidth_bps: np.ndarray
    """[R, R]."""

    def seconds(self, start: np.ndarray | int, end: np.ndarray | int, num_bytes: float) -> np.ndarray:
        """How long so many bytes take from regions `start` to regions `end`."""
        return self.latency_s[start, end] + 8 * num_bytes / self.bandwidth_bps[start, end]


def read_matrix(path: str, place: str, symmetric: bool = False) -> Matrix:
    """The links in a CSV file, one in a row, which hold both ways if `symmetric`. InputError at `place`, with the line,
    where a value is out of bounds or a link is given twice."""
    table = read_table(path, place)
    ends, numbers = (table.texts("from"), table.texts("to")), measured(table)
    for quantity, column in {"rtt_s": "rtt_ms", "bandwidth_bps": "bandwidth_gbps"}.items():
        if quantity not in numbers:
            table.require(column)
        column = next(name for name in table.columns if name.startswith(quantity.partition("_")[0]))
        table.refuse(column, np.isnan(numbers[quantity]), "is missing")
    regions, at = np.unique(np.concatenate(ends), return_inverse=True)
    start, end = at.reshape(2, -1)
    row, num_regions = np.arange(len(start)), len(regions)
    if symmetric:
        start, end, row = np.append(start, end), np.append(end, start), np.append(row, row)
    _, first, of_pair = np.unique(start * num_regions + end, return_index=True, return_inverse=True)
    twice = np.isin(row[: len(table.lines)], row[row[first[of_pair]] != row])
    hint = "keep one row of them" + ", or set network.symmetric = false" * symmetric
    table.refuse("from", twice, "begins a link that another row has, too", hint)
    values = {name: np.full((num_regions, num_regions), np.nan) for name in numbers}
    for name, matrix in values.items():
        matrix[start, end] = numbers[name][row]
    return Matrix(regions.tolist(), values["rtt_s"] / 2, values["bandwidth_bps"])


@NETWORKS.add
class MatrixNetwork(Network):
    """Links between regions, or between sites, in a CSV file with a row for each link: `from` and `to` (names of
    regions), `rtt_ms` (`_s`: round-trip time) and `bandwidth_gbps` (`_mbps`, `_bps`: bits per second).

    A row holds from one region to the other; where they are the same, it is the link of two sites in the region. A
    transfer takes half the round-trip time and its bytes by the bandwidth.
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
        matrix, key = read_matrix(self.path, place, self.symmetric), config_key("network", self)
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
        of_region = matrix.bandwidth_bps[:, home]
        if self.exchange == "ring":
            of_region = np.nan_to_num(matrix.bandwidth_bps).max(axis=1)
        shared_bps = self.aggregator_bandwidth_bps or np.inf
        own = matrix.latency_s[region, home], of_region[region], shared_bps, self.round_trip
        return MatrixLinks(*own, matrix, region, home, self)

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

    matrix: Matrix
    region: np.ndarray
    """Number of each site's region, [N]."""
    home: int
    """That of the aggregator."""
    network: MatrixNetwork

    @cached_property
    def _rings(self) -> Callable[[tuple[int, ...]], tuple[np.ndarray, np.ndarray]]:
        """`best_rings` through some regions, of which those of the last rounds are remembered."""
        return lru_cache(64)(partial(best_rings, self.matrix))

    @property
    def all_reduces(self) -> bool:
        """Whether the exchange is a ring."""
        return self.network.exchange == "ring"

    def transfer_s(
        self, sites: Sites, start_s: np.ndarray | float, up_bytes: float, down_bytes: float
    ) -> Transfers:
        """In a ring the time of these sites together; else by the links of their regions."""
        if self.all_reduces:
            order = np.arange(len(self.region))[sites]
            return Transfers(np.repeat(self.all_reduce_s(order, up_bytes)[-1:], len(order)), 0.0)
        region, home, regions = self.region[sites], self.home, np.arange(len(self.matrix.regions))
        ways = [(regions, home, up_bytes), (home, regions, down_bytes)][: 1 + self.round_trip]
        alone_s = sum(self.matrix.seconds(*way) for way in ways)
        if self.network.exchange == "two-level":  # the server of the aggregator's region is the aggregator
            alone_s[home] = 0.0
            alone_s += sum(self.matrix.seconds(regions, regions, num_bytes) for *_, num_bytes in ways)
        link_s = 8 * sum(num_bytes for *_, num_bytes in ways) / self.aggregator_bandwidth_bps
        if not self.network.shared_uplinks:
            return Transfers(alone_s[region], link_s)
        uplink_s = sum(
            8 * num_bytes / self.matrix.bandwidth_bps[start, end] for start, end, num_bytes in ways
        )
        uplink_s[home] = 0.0
        return Transfers(alone_s[region], link_s, region, uplink_s[region])

    def all_reduce_s(self, order: np.ndarray, num_bytes: float) -> np.ndarray:
        """2 (1 - 1/k) (M / B + latency): every part of an update passes all links of the ring but one, twice."""
        region = self.region[order]
        is_first = np.zeros(len(order), dtype=bool)
        is_first[np.unique(region, return_index=True)[1]] = True
        rings, of_ring = self._rings(tuple(region[is_first].tolist())), np.cumsum(is_first) - 1
        bandwidth_bps, latency_s = (values[of_ring] for values in rings)
        within_bps = np.where(is_first, np.inf, self.matrix.bandwidth_bps[region, region])
        within_s = np.where(is_first, 0.0, self.matrix.latency_s[region, region])
        bandwidth_bps = np.minimum(bandwidth_bps, np.minimum.accumulate(within_bps))
        k = np.arange(1, len(order) + 1)
        return 2 * (1 - 1 / k) * (8 * num_bytes / bandwidth_bps + latency_s + np.cumsum(within_s))


def best_rings(matrix: Matrix, regions: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The slowest link in bit/s and the latency of the best ring through the first m of these regions, for every m,
    [len(regions)] each. Best is the ring whose slowest link is fastest, and of several that of the least latency. A
    ring runs one way, over the links of that direction.

    Up to `MOST_EXACT` regions all rings are compared. Beyond, each region is put into the ring of those before it where
    the ring stays best, so that there may be a better one.
    """
    ring, within_s = np.array(regions[:1]), matrix.latency_s[regions[0], regions[0]]
    slowest_bps, latency_s = [np.inf], [float(np.nan_to_num(within_s))]
    for num in range(2, len(regions) + 1):
        if num <= MOST_EXACT:
            others = np.array([*permutations(regions[1:num])])
            rings = np.insert(others, 0, regions[0], axis=1)
            following = np.roll(rings, -1, axis=1)
            slowest = matrix.bandwidth_bps[rings, following].min(axis=1)
            latency = matrix.latency_s[rings, following].sum(axis=1)
            best = np.lexsort((latency, -slowest))[0]
            ring = rings[best]
        else:
            new, following = regions[num - 1], np.roll(ring, -1)
            links_bps = matrix.bandwidth_bps[ring, following]
            others_bps = np.full(num - 1, links_bps.min())  # the slowest but for the link that is cut
            others_bps[links_bps.argmin()] = np.delete(links_bps, links_bps.argmin()).min()
            slowest = np.minimum(matrix.bandwidth_bps[ring, new], matrix.bandwidth_bps[new, following])
            slowest = np.minimum(slowest, others_bps)
            latency = matrix.latency_s[ring, new] + matrix.latency_s[new, following]
            latency = latency_s[-1] + latency - matrix.latency_s[ring, following]
            best = np.lexsort((latency, -slowest))[0]
            ring = np.insert(ring, best + 1, new)
        slowest_bps.append(float(slowest[best]))
        latency_s.append(float(latency[best]))
    return np.array(slowest_bps), np.array(latency_s)
