"""One process that is aggregator and host at once: no MPI needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")


class SerialRanks:
    """The null group: every collective is the identity."""

    name = "serial"
    library = ""
    rank = 0
    size = 1
    local_host = 0
    is_aggregator = True
    hosts = range(1)

    def decide_on_root(self, decide: Callable[[], T]) -> T:
        """The decision itself."""
        return decide()

    def gather(self, value: Any) -> list[Any]:
        """The one value."""
        return [value]

    def combine(
        self, partial: torch.Tensor, num_params: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray]:
        """The sum is the partial sum."""
        return step(partial), partial[num_params:].cpu().numpy()

    def collect(self, slots: torch.Tensor) -> torch.Tensor:
        """They are here."""
        return slots

    def gather_rows(self, rows: Mapping[int, torch.Tensor]) -> Mapping[int, torch.Tensor]:
        """They are here."""
        return rows

    def scatter_rows(
        self, rows: Mapping[int, torch.Tensor] | None, destinations: np.ndarray
    ) -> dict[int, torch.Tensor]:
        """They stay here."""
        return dict(rows or {})

    def abort(self, code: int) -> None:
        """End this process, whatever its main thread does."""
        os._exit(code)

    def total(self, counts: np.ndarray) -> np.ndarray:
        """The counters as they are."""
        return counts

    def __enter__(self) -> SerialRanks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
