"""Settings of the GPUs that train, power cap and clock, applied for the time of a run.

A run restores them when it ends. No code of a process runs after it is killed (MPI_Abort and a failed watchdog kill,
too), so a helper waits for the end of the run: it reads a pipe that the kernel closes whatever ends the run, and then
undoes what the recovery notes of killed runs name (`recovery_log.py`). If a batch system kills the helper as well, the
notes remain for the next run and for `hpctrip gpu-settings --restore`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import Field

import hpctrip
from hpctrip.base.units import Watts
from hpctrip.config.component import Component
from hpctrip.device.counters import Unavailable
from hpctrip.device.nvml import Gpu
from hpctrip.device.recovery_log import RecoveryNote

_HELPER = """trap '' INT TERM HUP USR1 USR2
read -r _
exec "$@" -P -c 'from hpctrip.device.recovery_log import restore_leftovers; restore_leftovers()'"""
"""Shell script that waits for the end of its input and then starts Python, its argument. The signals that end jobs are
ignored."""


class GpuSettings(Component):
    """Settings of the GPUs that train, on every machine of the run; nothing here changes a result. They need root and
    the extra `[energy]`; without these, the run warns and continues. They are restored however the run ends."""

    power_cap_w: Watts | None = Field(None, ge=1, le=100_000)
    """Power cap of each GPU. Absent: unchanged."""
    clock_mhz: int | None = Field(None, ge=1, le=10_000)
    """Locked graphics clock of each GPU, in MHz. Absent: not locked."""

    @property
    def any(self) -> bool:
        """Whether there is any setting to apply."""
        return self.power_cap_w is not None or self.clock_mhz is not None


@dataclass(frozen=True)
class Applied:
    """Settings that were made, and those that were refused with the reason, a line each."""

    made: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class HeldSettings:
    """The settings of some GPUs, held by this process. A context: at its end the GPUs are as they were."""

    def __init__(self, uuids: Sequence[str]):
        self._uuids, self._notes = uuids, dict[str, RecoveryNote]()
        paths = [str(Path(hpctrip.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self._helper = subprocess.Popen(
            ["/bin/sh", "-c", _HELPER, "hpctrip-restore", sys.executable],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # out of reach of what ends the run's process group
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def apply(self, settings: GpuSettings) -> Applied:
        """Apply these settings; absent ones stay. Raises InputError where $HPCTRIP_KNOBS names no folder."""
        made: list[str] = []
        refused: list[str] = []
        for uuid in self._uuids:
            try:
                gpu = Gpu.of(uuid)
                if gpu.uuid not in self._notes:
                    self._notes[gpu.uuid] = RecoveryNote.take(gpu)
                note = self._notes[gpu.uuid]
                if settings.power_cap_w is not None:
                    cap = _cap(note, gpu, round(1000 * settings.power_cap_w))
                    made.append(f"{gpu.uuid}: {cap}")
                if (clock_mhz := settings.clock_mhz) is not None:
                    note.change(partial(gpu.lock_clock_mhz, clock_mhz), clock_mhz=clock_mhz)
                    made.append(f"{gpu.uuid}: clock {clock_mhz} MHz")
            except Unavailable as error:
                refused.append(str(error))
        return Applied(tuple(made), tuple(refused))

    def __enter__(self) -> HeldSettings:
        return self

    def __exit__(self, *error: object) -> None:
        for note in self._notes.values():
            with suppress(Unavailable):  # the note stays
                note.restore()
        self._helper.kill()
        self._helper.communicate()


@contextmanager
def holding(settings: GpuSettings, uuids: Sequence[str]) -> Iterator[Applied]:
    """A context in which these GPUs have the settings, as far as they can be applied; at its end they are as before."""
    if not settings.any:
        yield Applied()
    elif not uuids:
        yield Applied(refused=("no GPU trains here",))
    else:
        with HeldSettings(uuids) as held:
            yield held.apply(settings)


def _cap(note: RecoveryNote, gpu: Gpu, cap_mw: int) -> str:
    """Cap the power of a GPU; returns the setting in words. Raises Unavailable."""
    low, high = gpu.cap_range_mw
    words = f"power cap {cap_mw / 1000:g} W"
    if not low <= cap_mw <= high:
        bounds = f"{low / 1000:g} to {high / 1000:g} W"
        raise Unavailable(f"{gpu.uuid}: {words}: it takes {bounds}")
    before_mw = note.cap_before_mw or gpu.cap_mw
    note.change(partial(gpu.set_cap_mw, cap_mw), cap_mw=cap_mw, cap_before_mw=before_mw)
    return words
