"""NVIDIA GPUs through NVML: their energy counters and their settings (nvidia-ml-py, the extra `[energy]`).

NVML knows nothing of CUDA_VISIBLE_DEVICES, so GPUs are found by their UUIDs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hpctrip.base.errors import how_to_install
from hpctrip.base.text import counted
from hpctrip.device.counters import Counters, Unavailable, working

MOST_W = 3000.0
"""Largest power of a GPU that is believed, about twice that of the largest ones."""
_UUID = "GPU-"


@dataclass(frozen=True)
class Gpu:
    """One GPU. Every method raises Unavailable where the driver or the device refuses."""

    uuid: str
    """As NVML spells it."""
    handle: Any
    most_w = MOST_W
    range_uj = 0

    @classmethod
    def of(cls, uuid: str) -> Gpu:
        """The GPU with this UUID, as NVML or as torch spells it."""
        name = uuid if uuid.startswith(_UUID) else f"{_UUID}{uuid}"
        return cls(name, _call(name, "nvmlDeviceGetHandleByUUID", name))

    @property
    def place(self) -> str:
        """Its UUID."""
        return self.uuid

    def read_uj(self) -> int:
        """Microjoules since the driver was loaded (Volta and later)."""
        return self._call("nvmlDeviceGetTotalEnergyConsumption") * 1000

    @property
    def name(self) -> str:
        """The name of its product."""
        return self._call("nvmlDeviceGetName")

    @property
    def cap_mw(self) -> int:
        """Its power cap."""
        return self._call("nvmlDeviceGetPowerManagementLimit")

    @property
    def cap_range_mw(self) -> tuple[int, int]:
        """The lowest and the highest power cap that can be set."""
        low, high = self._call("nvmlDeviceGetPowerManagementLimitConstraints")
        return low, high

    def set_cap_mw(self, cap_mw: int) -> None:
        """Set its power cap (needs root)."""
        self._call("nvmlDeviceSetPowerManagementLimit", cap_mw)

    @property
    def clocks_mhz(self) -> list[int]:
        """The graphics clocks at which it can be held, rising: those at its fastest memory clock."""
        memory_mhz = max(self._call("nvmlDeviceGetSupportedMemoryClocks"), default=0)
        return sorted(self._call("nvmlDeviceGetSupportedGraphicsClocks", memory_mhz))

    def lock_clock_mhz(self, clock_mhz: int) -> None:
        """Hold its graphics clock (needs root; Volta and later)."""
        self._call("nvmlDeviceSetGpuLockedClocks", clock_mhz, clock_mhz)

    def unlock_clock(self) -> None:
        """Let its clock run free again."""
        self._call("nvmlDeviceResetGpuLockedClocks")

    def _call(self, function: str, *arguments: Any) -> Any:
        return _call(self.uuid, function, self.handle, *arguments)


def energy_of(uuids: Iterable[str]) -> Counters:
    """The energy counters of those of the GPUs with these UUIDs that count. Raises Unavailable where none does."""
    gpus, not_counted = working(Gpu.of, uuids)
    if not gpus:
        raise Unavailable("; ".join(not_counted))
    return Counters(f"{counted(len(gpus), 'GPU')} (NVML)", gpus, not_counted)


def all_uuids() -> list[str]:
    """The UUID of every GPU of this machine. Raises Unavailable where NVML does not answer."""
    handles = (
        _call("NVML", "nvmlDeviceGetHandleByIndex", i) for i in range(_call("NVML", "nvmlDeviceGetCount"))
    )
    return [_call("NVML", "nvmlDeviceGetUUID", handle) for handle in handles]


def _call(place: str, function: str, *arguments: Any) -> Any:
    """Call a function of NVML. Raises Unavailable, also where the driver is too old for the function."""
    nvml = _library()
    try:
        return getattr(nvml, function)(*arguments)
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
