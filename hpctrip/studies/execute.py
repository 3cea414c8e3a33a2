"""The runs of studies on this machine: worker processes side by side, one run each at a time.

Who else works on the same folder, another study or another start of this one, is no danger: a run belongs to whoever
holds its lock. A run that is held is put back and looked at again later.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from hpctrip.ranks.device import visible_gpus
from hpctrip.record.lock import is_held
from hpctrip.runner.signals import listening, received
from hpctrip.studies import worker
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunStatus, RunStore
from hpctrip.studies.worker import End, Job, Round

POLL_S = 0.2
LOOK_AGAIN_S = 1.0
"""So long a run that another process holds is left alone."""
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR2")
DIED = "its process died"


@dataclass
class Worker:
    """A worker process, and what it does."""

    process: BaseProcess
    pipe: Connection
    gpu: str = ""
    """What it sees as CUDA_VISIBLE_DEVICES; empty: what the study sees."""
    entry: Entry | None = None
    last: Round | None = None


Ended = Callable[[Entry, End], None]


@dataclass
class WorkerPool:
    """Workers that make the runs of `waiting`, in their order."""

    runs: RunStore
    waiting: deque[Entry]
    num_workers: int
    gpus: Sequence[str] = ()
    """Names for CUDA_VISIBLE_DEVICES, dealt out to the workers; empty: they see what this process sees."""
    ranks: int = 1
    """Ranks of every run."""
    workers: list[Worker] = field(default_factory=list)
    _not_before: dict[str, float] = field(default_factory=dict)

    def run(self, ended: Ended, tick: Callable[[], None]) -> bool:
        """Make all runs; `ended` is called as each is over, `tick` all the while. Returns whether all had their turn:
        not where a signal, or the end of the job's time, has ended it early. A second Ctrl-C raises
        KeyboardInterrupt."""
        leaving = told = False
        with listening(SIGNALS), self._staffed():
            while self._busy or (self.waiting and not leaving):
                if not leaving:
                    self._deal(ended)
                leaving = self._listen(ended) or leaving
                if received() and not told:  # also where a run has left by itself, and the others have not
                    leaving = told = True
                    for busy in self._busy:
                        self._ask_to_leave(busy)
                tick()
        return not leaving

    @property
    def _busy(self) -> list[Worker]:
        return [one for one in self.workers if one.entry is not None]

    def _deal(self, ended: Ended) -> None:
        """Give runs to workers that have none."""
        for _ in range(len(self.waiting)):
            idle = next((one for one in self.workers if one.entry is None), None)
            if idle is None and len(self.workers) == self.num_workers:
                return
            entry = self.waiting.popleft()
            if self.runs.inspect(entry).status == RunStatus.FINISHED:  # by another process, meanwhile
                self.runs.remove_leftovers(entry.identity)
                ended(entry, End(RunStatus.FINISHED))
            elif self._not_before.get(entry.identity, 0) > time.monotonic() or is_held(
                self.runs.results(entry.identity)
            ):
                self.waiting.append(entry)
            else:
                self._give(idle or self._hire(), entry)

    def _give(self, one: Worker, entry: Entry) -> None:
        self.runs.clear_failure(entry.identity)
        one.entry, one.last = entry, None
        with suppress(OSError):  # it has just died: that shows when it is listened to
            one.pipe.send(job(entry, self.runs, self.ranks))

    def _listen(self, ended: Ended) -> bool:
        """Hear what workers have to say, for a moment. Returns whether a run was interrupted."""
        speaking = {one.pipe: one for one in self.workers}
        interrupted = False
        if not speaking:
            time.sleep(POLL_S)
        for pipe in wait(list(speaking), POLL_S) if speaking else ():
            one = speaking[pipe]  # type: ignore[index]
            try:
                said = one.pipe.recv()
            except (EOFError, OSError):
                said = self._dismiss(one)
            if isinstance(said, Round):
                one.last = said
            elif one.entry is not None and said is not None:
                entry, one.entry = one.entry, None
                interrupted |= said.how == RunStatus.INTERRUPTED
                self._note(entry, said, ended)
        return interrupted

    def _note(self, entry: Entry, end: End, ended: Ended) -> None:
        if end.how == RunStatus.HELD:
            self._not_before[entry.identity] = time.monotonic() + LOOK_AGAIN_S
            self.waiting.append(entry)
            return
        if end.how == RunStatus.FAILED:
            self.runs.record_failure(entry.identity, end.reason)
        if end.how == RunStatus.FINISHED:
            self.runs.remove_leftovers(entry.identity)
        ended(entry, end)

    def _hire(self) -> Worker:
        """A new worker."""
        start = multiprocessing.get_context("spawn")
        ours, theirs = start.Pipe()
        taken = [one.gpu for one in self.workers]
        gpu = min(self.gpus, key=taken.count, default="")
        variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        with _environment(variables | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})), _deaf():
            process = start.Process(target=worker.work, args=(theirs, sys.orig_argv), daemon=True)
            process.start()
        theirs.close()
        self.workers.append(Worker(process, ours, gpu))
        return self.workers[-1]

    def _dismiss(self, one: Worker) -> End:
        """A worker that has died: how its run ended. The next run has another."""
        one.process.join()
        self.workers.remove(one)
        one.pipe.close()
        if received():  # it was asked to leave before it could listen
            return End(RunStatus.INTERRUPTED)
        code = one.process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return End(RunStatus.FAILED, f"{DIED} {how}")

    def _ask_to_leave(self, one: Worker) -> None:
        with suppress(ProcessLookupError):
            os.kill(one.process.pid or 0, signal.SIGTERM)

    @contextmanager
    def _staffed(self) -> Iterator[None]:
        """No worker outlives the body: an idle one leaves by itself, another is killed."""
        try:
            yield
        finally:
            for one in self.workers:
                with suppress(OSError):
                    one.pipe.send(None)
                if one.entry is not None:
                    one.process.kill()
                one.process.join()
                one.pipe.close()
            self.workers.clear()


def job(entry: Entry, runs: RunStore, ranks: int) -> Job:
    """What a worker needs to make a run."""
    paths = tuple(plugin.path for plugin in entry.run_input.extensions.plugins)
    return Job(runs.input_tables(entry), paths, runs.results(entry.identity), runs.log(entry.identity), ranks)


@contextmanager
def _deaf() -> Iterator[None]:
    """Within the body processes start that do not mind Ctrl-C, which reaches them all: they are told by the study."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Within the body processes start with these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def capacity() -> tuple[int, list[str]]:
    """(workers, GPUs): one for every GPU that this process sees, or for every core that it may use."""
    gpus = visible_gpus()
    return len(gpus) or len(os.sched_getaffinity(0)), gpus
