"""The contract of a transport: the collectives that a run needs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from hpctrip.base.errors import HpctripError
from hpctrip.base.text import printable

T = TypeVar("T")


class Ranks(Protocol):
    """A group of ranks. All collectives stand in the same order on all ranks.

    Rank 0 is the aggregator. `hosts` are the ranks that train sites: all but rank 0, or rank 0 where it is alone.
    Used as a context: an exception that leaves it ends the whole job at once.
    """

    name: str
    rank: int
    size: int
    library: str
    """Name and version of the MPI library; empty where none is used."""
    local_host: int
    """Index of this host among the hosts of its node (chooses the GPU)."""

    @property
    def is_aggregator(self) -> bool:
        """Is this rank 0?"""
        ...

    @property
    def hosts(self) -> range:
        """The ranks that train sites."""
        ...

    def decide_on_root(self, decide: Callable[[], T]) -> T:
        """Call `decide` at rank 0 and return its result at every rank. If it raises a HpctripError, rank 0 raises it,
        and every other rank ends quietly with the same exit code."""
        ...

    def gather(self, value: Any) -> list[Any] | None:
        """One small object per rank, at rank 0; None elsewhere."""
        ...

    def combine(
        self, partial: torch.Tensor, num_params: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Sum the ranks' int64 vectors [P + T], apply `step` to the sum, hand the new float32 parameters [P] to every
        rank. The summed tail [T] is returned at rank 0, None elsewhere."""
        ...

    def collect(self, slots: torch.Tensor) -> torch.Tensor | None:
        """The state of the server step [num_slots, P], brought from where `step` is applied to rank 0; None
        elsewhere."""
        ...

    def gather_rows(self, rows: Mapping[int, torch.Tensor]) -> Mapping[int, torch.Tensor] | None:
        """The float32 rows that hosts keep, by distinct keys, all at rank 0; None elsewhere."""
        ...

    def scatter_rows(
        self, rows: Mapping[int, torch.Tensor] | None, destinations: np.ndarray
    ) -> dict[int, torch.Tensor]:
        """The inverse: `rows` at rank 0 (None elsewhere) to the rank that `destinations` [keys] names for each key."""
        ...

    def abort(self, code: int) -> None:
        """End all ranks at once with this exit code. The one method that any thread may call."""
        ...

    def total(self, counts: np.ndarray) -> np.ndarray | None:
        """Sum of the ranks' int64 counters at rank 0; None elsewhere."""
        ...

    def __enter__(self) -> Ranks: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class EndedByAggregator(HpctripError):
    """Raised on other ranks when rank 0 has ended the run with an error that it reports itself."""

    def __init__(self, exit_code: int):
        super().__init__("")
        self.exit_code = exit_code


def build_collectively(ranks: Ranks, build: Callable[[], T]) -> T:
    """What `build` returns at this rank. A HpctripError at any rank ends all as in `Ranks.decide_on_root`: rank 0
    raises the first."""
    failure: HpctripError | None = None
    value: T
    try:
        value = build()
    except HpctripError as error:
        failure = error
    failures = ranks.gather(failure)

    def outcome() -> None:
        for found in failures or []:
            if found is not None:
                raise found

    ranks.decide_on_root(outcome)
    return value


def hosts_of(size: int) -> range:
    """Rank 0 hosts no sites when there are other ranks; alone, it does everything."""
    return range(1, size) if size > 1 else range(1)


def hostname() -> str:
    """This machine's name, as it is printed."""
    return printable(socket.gethostname(), 64)
