"""The WAN between the sites and the aggregator: how long transfers take (paper Eqs. 3, 4; Fig. 5).

A `Network` is a component that builds the `Links` of N sites, which answer how long the transfers take that start at
some time. Shapes: N sites, k sites that transfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.units import GB, MILE_M, BitsPerSecond, Bytes, Metres
from hpctrip.base.validate import instance, numbers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.faults import Faults
from hpctrip.sim.sites import Sites, known

SMALL_UPDATE_BYTES = 1000
"""Less than this is probably a number of gigabytes without its unit."""


class Transfers(NamedTuple):
    """Durations of the transfers between some sites and the aggregator in one round."""

    alone_s: np.ndarray
    """L_i of each that has the aggregator's link to itself, [k] (Eq. 3)."""
    link_s: float
    """Seconds that each takes of the aggregator's link, which all share; 0: no bound."""
    region: np.ndarray | None = None
    """Number of the region of each, [k], where the sites of a region share its uplink."""
    uplink_s: np.ndarray = np.float64(0)
    """Seconds that each takes of its region's uplink, [k]."""
    uplinks_s: np.ndarray = np.float64(0)
    """Seconds that all of these of its region take of it, [k]."""

    @property
    def together_s(self) -> np.ndarray:
        """L_i of all k at once, [k]: none ends before all that use a shared link have passed it."""
        return np.maximum(np.maximum(self.alone_s, len(self.alone_s) * self.link_s), self.uplinks_s)


@dataclass(frozen=True)
class Links:
    """Links of N sites to the aggregator. These never change; a subclass may answer by the time."""

    propagation_s: np.ndarray
    """Seconds one way, [N]."""
    bandwidth_bps: np.ndarray
    """B_i, [N] bit/s."""
    aggregator_bandwidth_bps: float
    """Bandwidth of the aggregator's own link; inf: no bound."""
    round_trip: bool
    """Whether the model travels down as well as the update up."""

    def transfer_s(
        self, sites: Sites, start_s: np.ndarray | float, up_bytes: float, down_bytes: float
    ) -> Transfers:
        """How long the transfers of `sites` [k] take that start at the simulated time `start_s`, or at one for each
        [k]: an update of `up_bytes` up and, in a round trip, a model of `down_bytes` down."""
        propagation_s, bandwidth_bps = self.propagation_s[sites], self.bandwidth_bps[sites]
        alone_s, shared_bytes = propagation_s + 8 * up_bytes / bandwidth_bps, up_bytes
        if self.round_trip:
            alone_s = alone_s + (propagation_s + 8 * down_bytes / bandwidth_bps)
            shared_bytes = up_bytes + down_bytes
        return Transfers(alone_s, 8 * shared_bytes / self.aggregator_bandwidth_bps)

    @property
    def all_reduces(self) -> bool:
        """Whether the sites of a round exchange their updates among themselves: all at once, when the last of them has
        computed, for as long as `all_reduce_s` says. Then they are what `transfer_s` says of them together."""
        return False

    def all_reduce_s(self, order: np.ndarray, num_bytes: float, clock_s: float) -> np.ndarray:
        """Seconds in which the first k sites of `order` [n] exchange updates of so many bytes, for every k, [n], over
        links as they are at that time."""
        raise NotImplementedError

    @property
    def calendar(self) -> Calendar | None:
        """Dates of the links; None: they have none."""
        return None

    def on(self, calendar: Calendar) -> Links:
        """The same links cut to a calendar within their own, from whose start simulated time counts."""
        raise NotImplementedError


class Network(Component):
    """Base of all networks: what travels between a site and the aggregator, over links that a kind defines."""

    update_bytes: Bytes | Literal["auto"] = 1.5 * GB
    """M: bytes of one uncompressed update on the simulated WAN; "auto": the real payload of the model; 0: no transfer
    time. [compression] shortens the upload."""
    round_trip: bool = False
    """Count the download of the model as well as the upload of the update: twice Eq. 3 (the model is never
    compressed)."""
    aggregator_bandwidth_bps: BitsPerSecond | None = Field(None, gt=0)
    """Bandwidth of the aggregator's own link, shared by the cohort: transfers take at least k M / B_agg."""

    @model_validator(mode="after")
    def _sends_something(self) -> Self:
        if self.update_bytes != "auto" and self.update_bytes < 0:
            raise ValueError(f"update_bytes = {self.update_bytes:g} is below 0")
        return self

    def check(self, leaves_flights: bool, faults: Faults) -> None:
        """InputError where it cannot serve such rounds, of which some updates arrive later or not at all."""

    def check_training(self) -> None:
        """InputError where it is a clock only, whose exchange no engine performs."""

    def warnings(self) -> list[str]:
        """One line for each value that is probably a mistake."""
        size = self.update_bytes
        if size == "auto" or not 0 < size < SMALL_UPDATE_BYTES:
            return []
        return [f'network.update_bytes = {size:g} is in bytes: write "{size:g} GB" where gigabytes are meant']

    def links(self, distance_m: np.ndarray, columns: Mapping[str, np.ndarray]) -> Links:
        """The links of sites at these distances [N] with these columns: those of `SitePlacement.columns`, such as the
        site's `region`."""
        raise NotImplementedError

    def checked_links(self, distance_m: np.ndarray, columns: Mapping[str, np.ndarray]) -> Links:
        """The links. InputError where the kind returns something else, or invalid bandwidths."""
        place = config_key("network", self)
        links = instance(self.links(distance_m, columns), Links, place, "its links")
        numbers(links.bandwidth_bps, distance_m.shape, 0.0, np.inf, place, "the bandwidths")
        return links


NETWORKS = Registry("network", default="distance", required=Network.links, added=True)


@NETWORKS.add
class DistanceNetwork(Network):
    """Links by a site's distance d_i to the aggregator, or by its own columns. L_i = d_i / v + M / B_i (Eq. 3); the
    cohort's communication time is the largest L_i (Eq. 4)."""

    kind = "distance"
    bandwidth_law: Literal["capped-inverse", "inverse", "linear"] = "capped-inverse"
    """B(d): near * min(1, near_distance / d); near * near_distance / d; or a straight line from near at 0 to far."""
    near_bandwidth_bps: BitsPerSecond = Field(1e9, gt=0)
    """Bandwidth of a near site."""
    near_distance_m: Metres = Field(1000 * MILE_M, gt=0)
    """Distance up to which the bandwidth is the near one (the paper: "relatively constant" inside 1000 miles)."""
    far_distance_m: Metres = Field(10_000 * MILE_M, gt=0)
    """Linear law: distance at which the bandwidth has fallen to far_bandwidth_bps; it is constant beyond."""
    far_bandwidth_bps: BitsPerSecond = Field(1e8, gt=0)
    """Linear law: bandwidth at far_distance_m."""
    propagation_m_per_s: float = Field(2e8, gt=0)
    """v: speed of light in fibre."""

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.bandwidth_law == "linear" and self.far_bandwidth_bps > self.near_bandwidth_bps:
            far, near = self.far_bandwidth_bps, self.near_bandwidth_bps
            raise ValueError(f"far_bandwidth_bps = {far:g} is above near_bandwidth_bps = {near:g}")
        return self

    def links(self, distance_m: np.ndarray, columns: Mapping[str, np.ndarray]) -> Links:
        """By the columns `rtt_s` and `bandwidth_bps`, and by the laws where they are unknown."""
        return Links(
            known(columns, "rtt_s", 2 * self.propagation_s(distance_m)) / 2,
            known(columns, "bandwidth_bps", self.bandwidth_bps(distance_m)),
            self.aggregator_bandwidth_bps or np.inf,
            self.round_trip,
        )

    def bandwidth_bps(self, distance_m: np.ndarray) -> np.ndarray:
        """B_i, [N] bit/s, by the bandwidth law."""
        if self.bandwidth_law == "linear":
            share = np.minimum(distance_m / self.far_distance_m, 1.0)
            return self.near_bandwidth_bps + (self.far_bandwidth_bps - self.near_bandwidth_bps) * share
        with np.errstate(divide="ignore"):
            inverse = self.near_bandwidth_bps * self.near_distance_m / distance_m
        if self.bandwidth_law == "inverse":
            return inverse
        return np.minimum(self.near_bandwidth_bps, inverse)

    def propagation_s(self, distance_m: np.ndarray) -> np.ndarray:
        """d_i / v, [N] s."""
        return distance_m / self.propagation_m_per_s
