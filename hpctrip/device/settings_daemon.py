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
from functools import partial

from hpctrip.device.counters import Unavailable
from hpctrip.device.nvml import Gpu
from hpctrip.device.recovery_log import AppliedSettings, RecoveryNote, leftovers

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def taken_over(process: int) -> RecoveryNote:
    """A new note of this process, with the settings that killed processes have left: they are undone with its own.
    Raises Unavailable where it cannot be written: then nothing is set either."""
    note = RecoveryNote.create(process)
    for left in leftovers():
        note.gpus |= left.gpus
        note.write()
        left.remove()
    return note


def apply(
    note: RecoveryNote, uuids: Iterable[str], cap_mw: int | None, clock_mhz: int | None
) -> tuple[list[str], list[str]]:
    """Give these GPUs the settings that are not None. Returns what was set, and what was refused and why, a line
    each."""
    made: list[str] = []
    refused: list[str] = []
    for uuid in uuids:
        try:
            gpu = Gpu.of(uuid)
            if cap_mw is not None:
                _cap(note, gpu, cap_mw)
                made.append(f"{gpu.uuid}: power cap {cap_mw / 1000:g} W")
            if clock_mhz is not None:
                _change(note, gpu, {"clock_mhz": clock_mhz}, partial(gpu.lock_clock_mhz, clock_mhz))
                made.append(f"{gpu.uuid}: clock {clock_mhz} MHz")
        except Unavailable as error:
            refused.append(str(error))
    return made, refused


def _cap(note: RecoveryNote, gpu: Gpu, cap_mw: int) -> None:
    low, high = gpu.cap_range_mw
    if not low <= cap_mw <= high:
        asked, bounds = f"power cap {cap_mw / 1000:g} W", f"{low / 1000:g} to {high / 1000:g} W"
        raise Unavailable(f"{gpu.uuid}: {asked}: it takes {bounds}")
    before_mw = note.gpus.get(gpu.uuid, AppliedSettings()).cap_before_mw or gpu.cap_mw
    _change(note, gpu, {"cap_mw": cap_mw, "cap_before_mw": before_mw}, partial(gpu.set_cap_mw, cap_mw))


def _change(note: RecoveryNote, gpu: Gpu, changes: dict[str, int], change: Callable[[], None]) -> None:
    """Write the note, then change the GPU; if that is refused, the note is as before."""
    before = dict(note.gpus)
    note.gpus[gpu.uuid] = before.get(gpu.uuid, AppliedSettings()).model_copy(update=changes)
    note.write()
    try:
        change()
    except Unavailable:
        note.gpus = before
        note.write()
        raise


def main(process: int) -> None:
    """Answer requests until the run, whose process id is `process`, has ended."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    note: RecoveryNote | None = None
    try:
        for line in sys.stdin:
            try:
                note = note or taken_over(process)
                answer = apply(note, **json.loads(line))
            except Unavailable as error:
                answer = [], [str(error)]
            print(json.dumps(answer), flush=True)
    finally:
        if note:
            with suppress(Unavailable):  # the note stays
                note.put_back()


if __name__ == "__main__":
    main(int(sys.argv[1]))
