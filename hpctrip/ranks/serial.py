"""Ranks of a single process, which is aggregator and host; needs no MPI."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch

from hpctrip.ranks.phase import Phase

T = TypeVar("T")


class SerialRanks:
    """A group of one rank, whose collectives return their arguments."""

    name = "serial"
    library = ""
    rank = 0
    size = 1
    local_host = 0
    is_aggregator = True
    hosts = range(1)

    def __init__(self) -> None:
        self.phase = Phase()

    def decide_on_root(self, decide: Callable[[], T]) -> T:
        """The result of `decide`."""
        return decide()

    def gather(self, value: Any) -> list[Any]:
        """The value as a list of one."""
        return [value]

    def combine(
        self, partial: torch.Tensor, num_params: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Apply the step to the only partial sum."""
        return step(partial), partial[num_params:].cpu().numpy()

    def collect(self, slots: torch.Tensor) -> torch.Tensor:
        """The slots themselves."""
        return slots

    def gather_rows(self, rows: Mapping[int, torch.Tensor]) -> Mapping[int, torch.Tensor]:
        """The rows themselves."""
        return rows

    def scatter_rows(
        self, rows: Mapping[int, torch.Tensor] | None, destinations: np.ndarray
    ) -> dict[int, torch.Tensor]:
        """The rows themselves."""
        return dict(rows or {})

    def abort(self, code: int) -> None:
        """End this process at once, from any thread."""
        os._exit(code)

    def total(self, counts: np.ndarray) -> np.ndarray:
        """The counters themselves."""
        return counts

    def __enter__(self) -> SerialRanks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
