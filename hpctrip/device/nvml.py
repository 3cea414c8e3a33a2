"""NVIDIA GPUs through NVML: their energy counters and their settings (nvidia-ml-py, the extra `[energy]`).

NVML knows nothing of CUDA_VISIBLE_DEVICES, so GPUs are found by their UUIDs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from hpctrip.base.errors import how_to_install
from hpctrip.device.counters import Unavailable

_T = TypeVar("_T")
_UUID = "GPU-"


@dataclass(frozen=True)
class Gpu:
    """One GPU. Every method raises Unavailable where the driver or the device refuses."""

    uuid: str
    """As NVML spells it."""
    handle: Any

    @classmethod
    def of(cls, uuid: str) -> Gpu:
        """The GPU with this UUID, as NVML or as torch spells it."""
        name = uuid if uuid.startswith(_UUID) else f"{_UUID}{uuid}"
        return cls(name, _called(name, lambda nvml: nvml.nvmlDeviceGetHandleByUUID(name)))

    def energy_uj(self) -> int:
        """Microjoules since the driver was loaded (Volta and later)."""
        return self._called(lambda nvml: nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) * 1000

    @property
    def name(self) -> str:
        """Its product's."""
        return self._called(lambda nvml: nvml.nvmlDeviceGetName(self.handle))

    @property
    def cap_mw(self) -> int:
        """Its power cap."""
        return self._called(lambda nvml: nvml.nvmlDeviceGetPowerManagementLimit(self.handle))

    @property
    def cap_range_mw(self) -> tuple[int, int]:
        """The lowest and the highest cap that it takes."""
        low, high = self._called(lambda nvml: nvml.nvmlDeviceGetPowerManagementLimitConstraints(self.handle))
        return low, high

    def set_cap_mw(self, cap_mw: int) -> None:
        """Give it a power cap (needs root)."""
        self._called(lambda nvml: nvml.nvmlDeviceSetPowerManagementLimit(self.handle, cap_mw))

    @property
    def clocks_mhz(self) -> list[int]:
        """The graphics clocks at which it can be held, rising: those at its fastest memory clock."""

        def supported(nvml: Any) -> list[int]:
            memory_mhz = max(nvml.nvmlDeviceGetSupportedMemoryClocks(self.handle), default=0)
            return sorted(nvml.nvmlDeviceGetSupportedGraphicsClocks(self.handle, memory_mhz))

        return self._called(supported)

    def lock_clock_mhz(self, clock_mhz: int) -> None:
        """Hold its graphics clock (needs root; Volta and later)."""
        self._called(lambda nvml: nvml.nvmlDeviceSetGpuLockedClocks(self.handle, clock_mhz, clock_mhz))

    def unlock_clock(self) -> None:
        """Let its clock run free again."""
        self._called(lambda nvml: nvml.nvmlDeviceResetGpuLockedClocks(self.handle))

    def _called(self, call: Callable[[Any], _T]) -> _T:
        return _called(self.uuid, call)


class Gpus:
    """The energy of some GPUs of this machine together."""

    def __init__(self, gpus: list[Gpu]):
        """Raises Unavailable where one of them counts none."""
        self.gpus = gpus
        self.name = f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''} (NVML)"
        self.read_uj()

    def read_uj(self) -> int:
        """Microjoules since the driver was loaded."""
        return sum(gpu.energy_uj() for gpu in self.gpus)


def gpus(uuids: Iterable[str]) -> list[Gpu]:
    """The GPUs with these UUIDs. Raises Unavailable where one is not found."""
    return [Gpu.of(uuid) for uuid in uuids]


def all_uuids() -> list[str]:
    """The UUID of every GPU of this machine. Raises Unavailable where NVML does not answer."""
    return _called(
        "NVML",
        lambda nvml: [
            nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(nvml.nvmlDeviceGetCount())
        ],
    )


def _called(place: str, call: Callable[[Any], _T]) -> _T:
    """The result of a call of NVML. Raises Unavailable, also where the driver is too old for the function."""
    nvml = _library()
    try:
        return call(nvml)
    except nvml.NVMLError as error:
        raise Unavailable(f"{place}: {error}") from error


@functools.cache  # a success: what raises is tried again
def _library() -> Any:
    """The package, with NVML loaded. It stays so until the process ends."""
    try:
        import pynvml
    except ImportError:
        raise Unavailable(f"nvidia-ml-py is not installed: {how_to_install('energy')}") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unavailable(f"NVML: {error}") from error
    return pynvml
