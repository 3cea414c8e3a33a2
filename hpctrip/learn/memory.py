"""What a site keeps from round to round, at the host that trains it: nothing of it ever travels with the updates.

Blocks of such sites have fixed hosts (ranks/placement.py), and a checkpoint holds every row.
"""

from __future__ import annotations

import torch


class SiteMemory:
    """One float32 row for every site that has trained here: what compression lost of its updates, then the state of
    its optimiser. Lengths of 0: nothing of that sort is kept."""

    def __init__(self, num_residual: int, num_optimizer: int, device: torch.device | str = "cpu"):
        self._lengths = num_residual, num_optimizer
        self._device = device
        self.rows: dict[int, torch.Tensor] = {}
        """[length] by site."""

    @property
    def keeps_optimizer(self) -> bool:
        """Do optimisers go on from round to round?"""
        return self._lengths[1] > 0

    @property
    def length(self) -> int:
        """Numbers that a site keeps."""
        return sum(self._lengths)

    def of(self, site: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """(residual, optimiser's state) of a site, views to read and write; zero before its first round. None where
        nothing of that sort is kept."""
        if not self.length:
            return None, None
        if site not in self.rows:
            self.rows[site] = torch.zeros(self.length, device=self._device)
        residual, optimizer = self.rows[site].split(self._lengths)
        return (residual if len(residual) else None), (optimizer if len(optimizer) else None)
