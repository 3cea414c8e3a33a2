"""The WAN between a site and the aggregator: bandwidth law and communication delay (paper Eqs. 3, 4; Fig. 5)."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.units import GB, MILE_M, BitsPerSecond, Bytes, Metres
from hpctrip.config.component import Component

SMALL_UPDATE_BYTES = 1000
"""Less than this is probably a number of gigabytes without its unit."""


class Network(Component):
    """WAN constants. L_i = d_i / v + M / B_i (Eq. 3); the cohort's communication time is the largest L_i (Eq. 4)."""

    update_bytes: Bytes | Literal["auto"] = 1.5 * GB
    """M: bytes of one uncompressed update on the simulated WAN; "auto": the real payload of the model; 0: no transfer
    time. [compression] shortens the upload."""
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
    round_trip: bool = False
    """Count the download of the model as well as the upload of the update: twice Eq. 3 (the model is never
    compressed)."""
    aggregator_bandwidth_bps: BitsPerSecond | None = Field(None, gt=0)
    """Bandwidth of the aggregator's own link, shared by the cohort: transfers take at least k M / B_agg."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.update_bytes != "auto" and self.update_bytes < 0:
            raise ValueError(f"update_bytes = {self.update_bytes:g} is below 0")
        if self.bandwidth_law == "linear" and self.far_bandwidth_bps > self.near_bandwidth_bps:
            far, near = self.far_bandwidth_bps, self.near_bandwidth_bps
            raise ValueError(f"far_bandwidth_bps = {far:g} is above near_bandwidth_bps = {near:g}")
        return self

    def warnings(self) -> list[str]:
        """One line for each value that is probably a mistake."""
        size = self.update_bytes
        if size == "auto" or not 0 < size < SMALL_UPDATE_BYTES:
            return []
        return [f'network.update_bytes = {size:g} is in bytes: write "{size:g} GB" where gigabytes are meant']

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

    def comm_s(
        self, propagation_s: np.ndarray, bandwidth_bps: np.ndarray, up_bytes: float, down_bytes: float
    ) -> np.ndarray:
        """L_i of a site that has the aggregator's link to itself, [N] s (Eq. 3); a round trip adds the way down."""
        up_s = propagation_s + 8 * up_bytes / bandwidth_bps
        return up_s + (propagation_s + 8 * down_bytes / bandwidth_bps) if self.round_trip else up_s

    def link_s(self, up_bytes: float, down_bytes: float) -> float:
        """Seconds that one site's transfer takes of the aggregator's own link; 0 where that is no bound.

        The cohort shares the link: none of k transfers ends before k times as long.
        """
        if self.aggregator_bandwidth_bps is None:
            return 0.0
        return 8 * (up_bytes + down_bytes if self.round_trip else up_bytes) / self.aggregator_bandwidth_bps
