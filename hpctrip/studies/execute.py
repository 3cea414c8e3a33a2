"""Executes the runs of studies on this machine in parallel worker processes, one run per worker at a time.

Several studies, or several starts of one study, may use the same folder at the same time: a run belongs to the process
that holds its lock. A run whose lock is held elsewhere returns to the queue and is tried again later.
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
from hpctrip.runner.signals import Signals
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunStatus, RunStore
from hpctrip.studies.worker import End, Job, Round, serve_jobs

POLL_S = 0.2
RETRY_S = 1.0
"""Wall seconds before a run that another process holds is tried again."""
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR2")
DIED = "its process died"


@dataclass
class Worker:
    """A worker process and its current run."""

    process: BaseProcess
    pipe: Connection
    gpu: str = ""
    """CUDA_VISIBLE_DEVICES of the process; empty: inherited from the study."""
    entry: Entry | None = None
    last: Round | None = None
    """The last round that it reported of this run."""


OnEnd = Callable[[Entry, End], None]


@dataclass
class WorkerPool:
    """Worker processes that execute the runs of the queue `waiting`, in order."""

    runs: RunStore
    waiting: deque[Entry]
    num_workers: int
    gpus: Sequence[str] = ()
    """Names for CUDA_VISIBLE_DEVICES, distributed over the workers; empty: workers inherit it from this process."""
    ranks: int = 1
    """Number of ranks of every run."""
    workers: list[Worker] = field(default_factory=list)
    signals: Signals = field(default_factory=lambda: Signals(SIGNALS))
    _not_before: dict[str, float] = field(default_factory=dict)

    def run(self, on_end: OnEnd, tick: Callable[[], None]) -> bool:
        """Execute all runs. `on_end` is called when a run ends, `tick` about every `POLL_S`.

        Returns whether every run was executed: False if a signal, or a run that was interrupted, stopped the pool
        early. A second Ctrl-C raises KeyboardInterrupt.
        """
        stopping = workers_signalled = False
        with self.signals, self._stop_workers():
            while self._busy or (self.waiting and not stopping):
                if not stopping:
                    self._assign(on_end)
                stopping = self._receive(on_end) or stopping
                if self.signals.received and not workers_signalled:
                    # also needed if an interrupted run has set `stopping`, as the other workers go on
                    stopping = workers_signalled = True
                    for busy in self._busy:
                        self._terminate(busy)
                tick()
        return not stopping

    @property
    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.entry is not None]

    def _assign(self, on_end: OnEnd) -> None:
        """Assign runs of the queue to idle workers, starting new workers as needed."""
        for _ in range(len(self.waiting)):
            idle = next((worker for worker in self.workers if worker.entry is None), None)
            if idle is None and len(self.workers) == self.num_workers:
                return
            entry = self.waiting.popleft()
            if self.runs.inspect(entry).status == RunStatus.FINISHED:  # by another process, meanwhile
                self.runs.remove_leftovers(entry.identity)
                on_end(entry, End(RunStatus.FINISHED))
            elif self._not_before.get(entry.identity, 0) > time.monotonic() or is_held(
                self.runs.results(entry.identity)
            ):
                self.waiting.append(entry)
            else:
                self._send(idle or self._start_worker(), entry)

    def _send(self, worker: Worker, entry: Entry) -> None:
        self.runs.clear_failure(entry.identity)
        worker.entry, worker.last = entry, None
        with suppress(OSError):  # the worker has died: `_receive` reports it
            worker.pipe.send(job(entry, self.runs, self.ranks))

    def _receive(self, on_end: OnEnd) -> bool:
        """Process the messages of the workers, waiting up to `POLL_S`. Returns whether a run was interrupted."""
        by_pipe = {worker.pipe: worker for worker in self.workers}
        interrupted = False
        if not by_pipe:
            time.sleep(POLL_S)
        for pipe in wait(list(by_pipe), POLL_S) if by_pipe else ():
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                message = self._remove_dead(worker)
            if isinstance(message, Round):
                worker.last = message
            elif worker.entry is not None and message is not None:
                entry, worker.entry = worker.entry, None
                interrupted |= message.status == RunStatus.INTERRUPTED
                self._record(entry, message, on_end)
        return interrupted

    def _record(self, entry: Entry, end: End, on_end: OnEnd) -> None:
        if end.status == RunStatus.HELD:
            self._not_before[entry.identity] = time.monotonic() + RETRY_S
            self.waiting.append(entry)
            return
        if end.status == RunStatus.FAILED:
            self.runs.record_failure(entry.identity, end.reason)
        if end.status == RunStatus.FINISHED:
            self.runs.remove_leftovers(entry.identity)
        on_end(entry, end)

    def _start_worker(self) -> Worker:
        """Start a worker process, on the GPU with the fewest workers."""
        start = multiprocessing.get_context("spawn")
        ours, theirs = start.Pipe()
        taken = [worker.gpu for worker in self.workers]
        gpu = min(self.gpus, key=taken.count, default="")
        variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        with _environment(variables | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})), _ignoring_sigint():
            process = start.Process(target=serve_jobs, args=(theirs, sys.orig_argv), daemon=True)
            process.start()
        theirs.close()
        self.workers.append(Worker(process, ours, gpu))
        return self.workers[-1]

    def _remove_dead(self, worker: Worker) -> End:
        """Remove a worker that has died. Returns how its run ended."""
        worker.process.join()
        self.workers.remove(worker)
        worker.pipe.close()
        if self.signals.received:  # SIGTERM reached it before its handler was installed
            return End(RunStatus.INTERRUPTED)
        code = worker.process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return End(RunStatus.FAILED, f"{DIED} {how}")

    def _terminate(self, worker: Worker) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker.process.pid or 0, signal.SIGTERM)

    @contextmanager
    def _stop_workers(self) -> Iterator[None]:
        """Stop all workers at the end of the body: idle ones exit on request, busy ones are killed."""
        try:
            yield
        finally:
            for worker in self.workers:
                with suppress(OSError):
                    worker.pipe.send(None)
                if worker.entry is not None:
                    worker.process.kill()
                worker.process.join()
                worker.pipe.close()
            self.workers.clear()


def job(entry: Entry, runs: RunStore, ranks: int) -> Job:
    """The job that a worker gets for a run of the grid."""
    paths = tuple(plugin.path for plugin in entry.run_input.extensions.plugins)
    return Job(runs.input_tables(entry), paths, runs.results(entry.identity), runs.log(entry.identity), ranks)


@contextmanager
def _ignoring_sigint() -> Iterator[None]:
    """Ignore SIGINT within the body; processes started there inherit this. A terminal sends Ctrl-C to all processes of
    the group, but the study alone decides when its workers stop."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables within the body, for the processes started there."""
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
    """(number of workers, GPUs): one worker per GPU visible to this process, or per usable core if there is none."""
    gpus = visible_gpus()
    return len(gpus) or len(os.sched_getaffinity(0)), gpus
