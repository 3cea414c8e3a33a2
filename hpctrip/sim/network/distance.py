"""Links by the distance of a site to the aggregator (paper Eqs. 3, 4; Fig. 5). Shapes: N sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.units import MILE_M, BitsPerSecond, Metres
from hpctrip.sim.network.base import NETWORKS, Links, Network
from hpctrip.sim.sites import known


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
