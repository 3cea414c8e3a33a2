"""Daemon that holds the settings of a run's GPUs and puts them back when the run has ended, however it ended.

    python -m hpctrip.device.settings_daemon PROCESS

No code of a process runs after it is killed, so another process applies the settings: it reads requests, a line of
JSON each, from its input, and answers each with a line. The end of the input is the end of the run: closed at an
orderly end or by an exception, and by the kernel after os._exit, MPI_Abort or SIGKILL. The daemon has a session of its
own and ignores the signals that end jobs. If it is killed too (a batch system that kills everything), its recovery note
remains (`recovery_log.py`).
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from hpctrip.device.counters import Unavailable
from hpctrip.device.nvml import Gpu
from hpctrip.device.recovery_log import AppliedSettings, RecoveryNote, leftovers

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class HeldSettings:
    """The settings that this process has applied. It takes over those that killed processes have left, and undoes them
    at its end too."""

    def __init__(self, process: int):
        """Raises Unavailable where no recovery note can be written: then nothing is set either."""
        self.note = RecoveryNote.create(process)
        for left in leftovers():
            self.note.gpus |= left.gpus
            self.note.write()
            left.remove()

    def apply(
        self, uuids: Iterable[str], cap_mw: int | None, clock_mhz: int | None
    ) -> tuple[list[str], list[str]]:
        """Give these GPUs the settings that are not None. Returns what was set, and what was refused and why, a line
        each."""
        made: list[str] = []
        refused: list[str] = []
        for uuid in uuids:
            try:
                gpu = Gpu.of(uuid)
                if cap_mw is not None:
                    self._cap(gpu, cap_mw)
                    made.append(f"{gpu.uuid}: power cap {cap_mw / 1000:g} W")
                if clock_mhz is not None:
                    self._change(gpu, {"clock_mhz": clock_mhz}, lambda gpu=gpu: gpu.lock_clock_mhz(clock_mhz))
                    made.append(f"{gpu.uuid}: clock {clock_mhz} MHz")
            except Unavailable as error:
                refused.append(str(error))
        return made, refused

    def _cap(self, gpu: Gpu, cap_mw: int) -> None:
        low, high = gpu.cap_range_mw
        if not low <= cap_mw <= high:
            asked, bounds = f"power cap {cap_mw / 1000:g} W", f"{low / 1000:g} to {high / 1000:g} W"
            raise Unavailable(f"{gpu.uuid}: {asked}: it takes {bounds}")
        before_mw = self.note.gpus.get(gpu.uuid, AppliedSettings()).cap_before_mw or gpu.cap_mw
        self._change(gpu, {"cap_mw": cap_mw, "cap_before_mw": before_mw}, lambda: gpu.set_cap_mw(cap_mw))

    def _change(self, gpu: Gpu, changes: dict[str, int], change: Callable[[], None]) -> None:
        """Write the note, then change the GPU; if that is refused, the note is as before."""
        before = dict(self.note.gpus)
        self.note.gpus[gpu.uuid] = before.get(gpu.uuid, AppliedSettings()).model_copy(update=changes)
        self.note.write()
        try:
            change()
        except Unavailable:
            self.note.gpus = before
            self.note.write()
            raise


def main(process: int) -> None:
    """Answer requests until the run, whose process id is `process`, has ended."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    settings: HeldSettings | None = None
    try:
        for line in sys.stdin:
            try:
                settings = settings or HeldSettings(process)
                answer = settings.apply(**json.loads(line))
            except Unavailable as error:
                answer = [], [str(error)]
            print(json.dumps(answer), flush=True)
    finally:
        if settings:
            with suppress(Unavailable):  # the note stays
                settings.note.put_back()


if __name__ == "__main__":
    main(int(sys.argv[1]))
