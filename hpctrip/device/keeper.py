"""The process that holds the settings of a run's GPUs, and puts them back when the run is gone, however it went.

    python -m hpctrip.device.keeper PROCESS

Nothing within a process survives its being killed, so settings are made by another one: it reads requests, a line of
JSON each, from its input, and answers each with a line. The end of the input is the end of the run: closed at an
orderly end or by an exception, and by the kernel after os._exit, MPI_Abort or SIGKILL. It is in a session of its own
and deaf to the signals that end jobs. Where it is killed too (a batch system that kills everything), its note is left
(`notes.py`).
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable

from hpctrip.device.notes import Held, Note, leftovers
from hpctrip.device.nvml import Gpu
from hpctrip.device.source import Unavailable

_DEAF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Settings:
    """What this process has set. It begins with what killed processes have left, which it undoes at its end too."""

    def __init__(self, process: int):
        """Raises Unavailable where no note can be kept: then nothing is set either."""
        self._note = Note(process)
        self._held: dict[str, Held] = {}
        for left in leftovers():
            self._held |= left.gpus
            self._note.write(self._held)
            left.forget()

    def make(
        self, uuids: Iterable[str], cap_mw: int | None, clock_mhz: int | None
    ) -> tuple[list[str], list[str]]:
        """Give these GPUs the settings that are not None. What was set, and what was refused and why, a line each."""
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
        before_mw = self._held.get(gpu.uuid, Held()).cap_before_mw or gpu.cap_mw
        self._change(gpu, {"cap_mw": cap_mw, "cap_before_mw": before_mw}, lambda: gpu.set_cap_mw(cap_mw))

    def _change(self, gpu: Gpu, changes: dict[str, int], change: Callable[[], None]) -> None:
        """Note it, then do it; where it is refused, the note says what it said before."""
        before = dict(self._held)
        self._held[gpu.uuid] = before.get(gpu.uuid, Held()).model_copy(update=changes)
        self._note.write(self._held)
        try:
            change()
        except Unavailable:
            self._held = before
            self._note.write(self._held)
            raise

    def put_back(self) -> None:
        """Undo everything. Where that fails, the note stays."""
        is_done = True
        for uuid, held in self._held.items():
            try:
                held.put_back(Gpu.of(uuid))
            except Unavailable:
                is_done = False
        if is_done:
            self._note.remove()


def main(process: int) -> None:
    """Answer requests until the run that is `process` is gone."""
    for number in _DEAF:
        signal.signal(number, signal.SIG_IGN)
    settings: Settings | None = None
    try:
        for line in sys.stdin:
            try:
                settings = settings or Settings(process)
                answer = settings.make(**json.loads(line))
            except Unavailable as error:
                answer = [], [str(error)]
            print(json.dumps(answer), flush=True)
    finally:
        if settings:
            settings.put_back()


if __name__ == "__main__":
    main(int(sys.argv[1]))
