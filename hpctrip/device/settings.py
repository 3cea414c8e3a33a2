"""Settings of the GPUs that train, power cap and clock, applied for the time of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

import hpctrip
from hpctrip.base.units import Watts
from hpctrip.config.component import Component
from hpctrip.device.recovery_log import FOLDER, place_of_notes

_PUT_BACK_S = 30.0
"""Longest time that an orderly end waits for the settings to be put back; the daemon goes on with it afterwards."""


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


class SettingsProcess:
    """The daemon that holds the settings of some GPUs (`settings_daemon.py`), as the run sees it. A context: at its end
    the GPUs are as they were."""

    def __init__(self, uuids: Sequence[str]):
        """Raises InputError where $HPCTRIP_KNOBS names no folder."""
        self._uuids = list(uuids)
        paths = [str(Path(hpctrip.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hpctrip.device.settings_daemon", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # out of reach of what ends the run's process group
            cwd="/",
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), FOLDER: str(place_of_notes())},
        )

    def apply(self, settings: GpuSettings) -> Applied:
        """Apply these settings; absent ones stay as they are."""
        cap_mw = None if settings.power_cap_w is None else round(1000 * settings.power_cap_w)
        request = {"uuids": self._uuids, "cap_mw": cap_mw, "clock_mhz": settings.clock_mhz}
        try:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            made, refused = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            return Applied(refused=("the process that holds the settings has ended",))
        return Applied(tuple(made), tuple(refused))

    def __enter__(self) -> SettingsProcess:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin and self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PUT_BACK_S)
        self._process.stdout.close()
