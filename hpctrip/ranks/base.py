"""A group of ranks: the collectives that a run needs, and the phase, the wall times and the device of each rank."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.text import printable

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass
class Phase:
    """The current phase of a rank. The main thread writes it, the watchdog thread reads it."""

    name: str = "start"
    round: int = 0
    waits: bool = False
    """Whether the rank is only waiting for others."""
    since: float = field(default_factory=time.monotonic)
    """Start of the phase or the wait, in seconds of time.monotonic (which stops while a laptop sleeps)."""

    def enter(self, name: str, round: int) -> None:
        """Begin a phase, or the next part of one: its time starts at 0."""
        self.name, self.round, self.since = name, round, time.monotonic()

    def waiting(self) -> Waiting:
        """A context whose body only waits for other ranks; the time in it does not count as the phase's."""
        return Waiting(self)


@dataclass(slots=True)
class Waiting:
    """See `Phase.waiting`. A class, because it is entered at every step of a collective: with a generator, the exchange
    of 41 ranks on two cores takes a fifth more time."""

    phase: Phase

    def __enter__(self) -> None:
        self.phase.waits, self.phase.since = True, time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.phase.waits, self.phase.since = False, time.monotonic()


class RoundTimer:
    """Measures the wall time of the current round and its phases. A round begins at the end of the one before."""

    def __init__(self, phase: Phase) -> None:
        """`phase` is the phase of this rank, which follows those that are measured."""
        self._current = phase
        self._began: float | None = None
        self.phases: dict[str, float] = {}

    def start(self) -> None:
        """Begin the phases of the next round."""
        self.phases = {}
        self._began = self._began or time.perf_counter()

    def end(self) -> float:
        """End the round; returns its wall time."""
        assert self._began is not None
        began, self._began = self._began, time.perf_counter()
        return self._began - began

    @contextmanager
    def phase(self, name: str, round: int) -> Iterator[None]:
        """Add the time of the body to a phase, which becomes the current one."""
        self._current.enter(name, round)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began


class Ranks:
    """A group of ranks and its collectives, which every rank calls in the same order. This class is a single process;
    `MpiRanks` is a group over MPI. Rank 0 is the aggregator.

    A group is a context manager: an exception that leaves its body ends the whole job at once.
    """

    name = "serial"
    rank = 0
    size = 1
    library = ""
    """Name and version of the MPI library; empty where none is used."""
    local_host = 0
    """Index of this host among the hosts of its machine; selects the GPU."""

    def __init__(self, phase: Phase | None = None):
        self.phase = phase or Phase()
        """The current phase of this rank, which its watchdog reports."""

    @property
    def is_aggregator(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def hosts(self) -> range:
        """The ranks that train sites: all but rank 0, or rank 0 if it is the only one."""
        return range(1, self.size) if self.size > 1 else range(1)

    def decide_on_root(self, decide: Callable[[], T]) -> T:
        """Call `decide` at rank 0 and return its result at every rank. If it raises a HpctripError, rank 0 raises it,
        and every other rank raises EndedByAggregator with the same exit code."""
        return decide()

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks as a list at rank 0; None elsewhere. For small objects, which are pickled."""
        return [value]

    def combine(
        self, partial: torch.Tensor, length: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Sum the int64 vectors [n + T] of all ranks, where n is the `length` of the model, apply `step` to the sum,
        and return the new float32 model [n] at every rank. The summed tail [T] is returned at rank 0, None
        elsewhere."""
        return step(partial), partial[length:].cpu().numpy()

    def largest(self, values: np.ndarray) -> np.ndarray:
        """The largest of the ranks' int64 values at each place, at every rank."""
        gathered = self.gather(values)
        return self.decide_on_root(lambda: np.max(gathered, axis=0))

    def collect(self, slots: torch.Tensor) -> torch.Tensor | None:
        """The state of the server step [num_slots, P] at rank 0, sent from a rank that applies `step`; None
        elsewhere."""
        return slots if self.is_aggregator else None

    def gather_rows(self, rows: Mapping[int, torch.Tensor]) -> Mapping[int, torch.Tensor] | None:
        """The float32 rows of all hosts, {key: row}, at rank 0; None elsewhere. No two hosts have the same key."""
        return rows

    def scatter_rows(
        self, rows: Mapping[int, torch.Tensor] | None, destinations: np.ndarray
    ) -> dict[int, torch.Tensor]:
        """Send `rows` at rank 0 (None elsewhere) to the ranks `destinations` [keys]; returns those of this rank.
        Inverse of `gather_rows`."""
        return dict(rows or {})

    def abort(self, code: int) -> None:
        """End all ranks at once with this exit code. The only method that any thread may call."""
        os._exit(code)

    def total(self, counts: np.ndarray) -> np.ndarray | None:
        """Sum of the ranks' int64 counters at rank 0; None elsewhere."""
        return counts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the whole job on an exception that the other ranks do not know of; there are none here."""


class EndedByAggregator(HpctripError):
    """Raised at the other ranks when rank 0 has raised an error in a collective; only rank 0 reports it."""

    agreed = True

    def __init__(self, exit_code: int):
        super().__init__("")
        self.exit_code = exit_code


def build_collectively(ranks: Ranks, build: Callable[[], T]) -> T:
    """Call `build` at every rank and return its result. If it raises a HpctripError at any rank, all ranks end as in
    `Ranks.decide_on_root`: rank 0 raises the error of the lowest rank. A collective."""
    failure: HpctripError | None = None
    value: T
    try:
        value = build()
    except HpctripError as error:
        failure = error
    failures = ranks.gather(failure)

    def raise_first() -> None:
        for error in failures or []:
            if error is not None:
                raise error

    ranks.decide_on_root(raise_first)
    return value


def hostname() -> str:
    """The name of this machine, made printable."""
    return printable(socket.gethostname(), 64)


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """The CPU for `cpu` and on machines without a GPU; else one of the machine's GPUs, assigned to its hosts
    round-robin.

    An aggregator beside other ranks always computes on the CPU, so that it takes no GPU time from a host.
    """
    import torch

    if name == "cpu" or not torch.cuda.is_available() or ranks.rank not in ranks.hosts:
        return torch.device("cpu")
    return torch.device("cuda", ranks.local_host % torch.cuda.device_count())


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process sees, as CUDA_VISIBLE_DEVICES takes them."""
    import torch

    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return (names or list(map(str, range(count))))[:count]


def gpu_identity(device: torch.device) -> str:
    """The UUID of a GPU, which identifies it even where every rank sees a single GPU numbered 0 (`--gpus-per-task`).
    Its index with torch before 2.5, which has no UUIDs; empty for a CPU."""
    if device.type == "cpu":
        return ""
    import torch

    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index))


def device_name(device: torch.device) -> str:
    """Name of a device in results files: that of the GPU, or "cpu"."""
    if device.type == "cpu":
        return "cpu"
    import torch

    return torch.cuda.get_device_name(device)


def hosts_kind(name: str, device: torch.device, ranks: Ranks) -> str:
    """The device type that all hosts have in common: "cuda", or "cpu" where a host has no GPU. A collective.

    Engine and blocks depend on it at every rank, including an aggregator that itself computes on the CPU. Raises
    InputError where `name` is "cuda" and a host has no GPU.
    """
    kinds = ranks.gather(device.type)

    def agree() -> str:
        without = [rank for rank in ranks.hosts if kinds[rank] != "cuda"]
        if name == "cuda" and without:
            problem = f"torch sees no CUDA device at rank {without[0]}"
            raise InputError('ranks.device = "cuda"', problem, 'use "auto" or "cpu"')
        return "cpu" if without else "cuda"

    return ranks.decide_on_root(agree)
