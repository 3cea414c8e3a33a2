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
from hpctrip.device.recovery_log import RecoveryNote

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


Notes = dict[str, RecoveryNote]
"""{UUID: note} of the GPUs whose settings this process holds."""


def apply(
    notes: Notes, process: int, uuids: Iterable[str], cap_mw: int | None, clock_mhz: int | None
) -> tuple[list[str], list[str]]:
    """Give these GPUs the settings that are not None, for the run `process`. Returns what was set, and what was refused
    and why, a line each."""
    made: list[str] = []
    refused: list[str] = []
    for uuid in uuids:
        try:
            gpu = Gpu.of(uuid)
            if gpu.uuid not in notes:
                notes[gpu.uuid] = RecoveryNote.take(gpu, process)
            note = notes[gpu.uuid]
            if cap_mw is not None:
                _cap(note, gpu, cap_mw)
                made.append(f"{gpu.uuid}: power cap {cap_mw / 1000:g} W")
            if clock_mhz is not None:
                _change(note, {"clock_mhz": clock_mhz}, partial(gpu.lock_clock_mhz, clock_mhz))
                made.append(f"{gpu.uuid}: clock {clock_mhz} MHz")
        except Unavailable as error:
            refused.append(str(error))
    return made, refused


def _cap(note: RecoveryNote, gpu: Gpu, cap_mw: int) -> None:
    low, high = gpu.cap_range_mw
    if not low <= cap_mw <= high:
        asked, bounds = f"power cap {cap_mw / 1000:g} W", f"{low / 1000:g} to {high / 1000:g} W"
        raise Unavailable(f"{gpu.uuid}: {asked}: it takes {bounds}")
    before_mw = note.applied.cap_before_mw or gpu.cap_mw
    _change(note, {"cap_mw": cap_mw, "cap_before_mw": before_mw}, partial(gpu.set_cap_mw, cap_mw))


def _change(note: RecoveryNote, changes: dict[str, int], change: Callable[[], None]) -> None:
    """Write the note, then change the GPU; if that is refused, the note is as before."""
    before = note.applied
    note.applied = before.model_copy(update=changes)
    note.write()
    try:
        change()
    except Unavailable:
        note.applied = before
        note.write()
        raise


def main(process: int) -> None:
    """Answer requests until the run, whose process id is `process`, has ended."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    notes: Notes = {}
    try:
        for line in sys.stdin:
            print(json.dumps(apply(notes, process, **json.loads(line))), flush=True)
    finally:
        for note in notes.values():
            with suppress(Unavailable):  # the note stays
                note.put_back()


if __name__ == "__main__":
    main(int(sys.argv[1]))
