"""What a host keeps of sites from round to round: their state, and their updates that are under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpctrip.learn.counters import LOSSES

if TYPE_CHECKING:
    import torch

REPORTS = (*LOSSES, "update_norm", "diverged")
"""Counters of a site that are noted when its update arrives."""
NUM_PACKED = 2 * len(REPORTS)
"""Number of float32 entries that hold them, float64, bit for bit."""


class Arrival(NamedTuple):
    """An update that arrives in a round."""

    position: int
    """In the round's cohort."""
    delta: torch.Tensor | None
    """[P + B], as it arrives; None where training diverged."""
    magnitude: float | None
    """That of `delta`, as in a `SiteUpdate`; None: not computed."""
    reports: Mapping[str, float | torch.Tensor]
    """{name: value} of REPORTS; only "diverged" where training did."""


class SiteState:
    """State of the sites from round to round, at the host that trains them: one float32 row a site.

    A row holds what compression lost of the site's updates, then the state of its optimiser; either length may be 0. It
    never travels with the updates: blocks of such sites have fixed hosts (ranks/placement.py), and a checkpoint holds
    every row, as it does the updates that are under way.
    """

    def __init__(self, num_residual: int, num_optimizer: int, device: torch.device | str = "cpu"):
        self._lengths = num_residual, num_optimizer
        self._device = device
        self.rows: dict[int, torch.Tensor] = {}
        """[length] by site."""
        self.updates: dict[int, torch.Tensor] = {}
        """Updates that arrive in a later round, by site, at the host that trained it or any other: [P + B] and the
        reports."""

    @property
    def length(self) -> int:
        """Length of a row."""
        return sum(self._lengths)

    def of(self, site: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """(residual, optimiser's state) of a site, views to read and write; zero before its first round. None for a
        part of length 0."""
        if not self.length:
            return None, None
        if site not in self.rows:
            import torch

            self.rows[site] = torch.zeros(self.length, device=self._device)
        residual, optimizer = self.rows[site].split(self._lengths)
        return (residual if len(residual) else None), (optimizer if len(optimizer) else None)

    def keep(self, site: int, arrival: Arrival, start: torch.Tensor, num_params: int) -> None:
        """Keep an update that arrives in a later round: its delta from `start` [P + B], but of buffers the values,
        because the model from which they differ is gone by then."""
        import torch

        delta = torch.zeros_like(start) if arrival.delta is None else arrival.delta.clone()
        delta[num_params:] += start[num_params:]
        reports = np.array([float(arrival.reports.get(name, np.nan)) for name in REPORTS])
        self.updates[site] = torch.cat([delta, torch.from_numpy(reports.view(np.float32)).to(delta)])

    def taken(self, site: int, position: int, start: torch.Tensor, num_params: int) -> Arrival | None:
        """The update that was kept for a site, as it arrives at the model `start` [P + B]; None where this rank has
        none."""
        if (row := self.updates.pop(site, None)) is None:
            return None
        delta, packed = row[: len(start)], row[len(start) :].cpu().numpy()
        reports = dict(zip(REPORTS, packed.view(np.float64).tolist(), strict=True))
        delta[num_params:] -= start[num_params:]
        return Arrival(position, None if reports["diverged"] else delta, None, reports)
