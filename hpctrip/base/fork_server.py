"""A fork server: a process that loads large packages once and forks a process for each that asks.

The ranks of a job on one machine ask it (`hpctrip.ranks.start`), and a study for its runs. A client connects to the
server's Unix socket and sends a `Request` with open files. The server answers with the process id of the process that
it has forked, and at its end with its exit code. Each byte that the client sends meanwhile is the number of a signal
for that process. Where the connection breaks, because the client has died, and where the server dies, the process is
sent the signal `on_loss`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from hpctrip.base import process

SIGNALS = [
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
]
"""Signals that a client may send. A server blocks them: they are meant for what it forks."""
MOST_FILES = 8
"""Open files of one request."""
_NUMBER = struct.Struct("i")
_PR_SET_PDEATHSIG = 1  # of sys/prctl.h


def _usable_processors() -> list[int]:
    """Numbers of the processors that this process may use; empty where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@dataclass(frozen=True)
class Request:
    """The settings that a forked process takes over from its client, whose open files are sent beside them."""

    command: Sequence[str] = field(default_factory=lambda: sys.orig_argv)
    """The command line, recorded with results."""
    arguments: Sequence[str] = field(default_factory=lambda: sys.argv)
    """The new sys.argv."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: str = field(default_factory=os.getcwd)
    processors: Sequence[int] = field(default_factory=_usable_processors)
    started: float = field(default_factory=process.start_time)
    """When the client started, in seconds since 1970."""
    on_loss: int = signal.SIGKILL
    """Signal to the forked process where its client or the server dies."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts by which the server may refuse."""


class Forked:
    """A process that a fork server has forked for this one, its client. `fileno` becomes readable when it ends."""

    def __init__(self, address: str | bytes, request: Request, files: Sequence[int]):
        """Raises ConnectionRefusedError where no server listens at `address`, and another OSError where it refuses the
        request or dies before it has forked, and where a file is not open."""
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.connect(address)
            if not _is_same_user(self._connection):
                raise PermissionError("the fork server is another user's")
            text = json.dumps(asdict(request)).encode()
            socket.send_fds(self._connection, [_NUMBER.pack(len(text))], list(files))
            self._connection.sendall(text)
            if (pid := self._number()) is None:
                raise ConnectionAbortedError("the fork server has not forked")
        except OSError:
            self._connection.close()
            raise
        self.pid = pid
        self._connection.setblocking(False)

    def fileno(self) -> int:
        """The connection to the server, which does not block. What is written to it are signals (see the module)."""
        return self._connection.fileno()

    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return not readable([self._connection], 0)

    def signal(self, number: int) -> None:
        """Send a signal to the process; SIGKILL goes to its process group. No effect where it has ended."""
        with suppress(OSError):
            self._connection.send(bytes([number]))

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code, or minus the signal that has killed it: SIGKILL
        where the server has died. To be called once."""
        readable([self._connection])
        code = self._number()
        return -signal.SIGKILL if code is None else code

    def _number(self) -> int | None:
        """The next number from the server; None where the connection is broken."""
        with suppress(ConnectionError):
            if message := self._connection.recv(_NUMBER.size):
                return _NUMBER.unpack(message)[0]
        return None


def readable(files: Iterable[socket.socket | Forked | int], timeout_s: float | None = None) -> set[int]:
    """The numbers of those open files that can be read, after waiting for one of them."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {number for number, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}


def serve(
    listener: socket.socket,
    lifeline: int,
    prepare: Callable[[], None],
    accepts: Callable[[Request], bool] = lambda request: True,
) -> tuple[Request, list[int]]:
    """Call `prepare` once and fork a process for every accepted request; returns in these processes only, with the
    files of the request but for the first three, which become its standard streams. The server ends with its last
    child, once the other end of the pipe `lifeline` is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _at_death_of_parent(signal.SIGKILL)  # while it prepares, it does not look at the lifeline
    prepare()
    _at_death_of_parent(0)
    gc.collect()
    gc.freeze()  # a collection would write to the pages that all share
    return _Server(listener, lifeline, accepts).run()


class _Server:
    """The loop of a fork server: its open files and its children."""

    def __init__(self, listener: socket.socket, lifeline: int, accepts: Callable[[Request], bool]):
        self._listener, self._lifeline, self._accepts = listener, lifeline, accepts
        self._children: dict[int, tuple[socket.socket, int]] = {}
        """By the id of a forked process: the connection to its client, and the signal `on_loss`."""
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)

    def run(self) -> tuple[Request, list[int]]:
        """Serve, then end this process; returns in forked processes."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it writes a byte to `_wake`
        signal.set_wakeup_fd(self._wake.fileno())
        is_over = False
        while self._children or not is_over:
            clients = [client for client, _ in self._children.values() if client.fileno() >= 0]
            ready = readable([self._woken, *clients, *([] if is_over else [self._listener, self._lifeline])])
            for child, (client, on_loss) in self._children.items():
                if client.fileno() in ready:
                    _obey(child, client, on_loss)
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
                self._reap()
            if self._listener.fileno() in ready and (forked := self._accept()):
                return forked
            is_over |= self._lifeline in ready
        os._exit(0)

    def _accept(self) -> tuple[Request, list[int]] | None:
        """Fork a process for the next client and return there what it is to be. A client that is refused finds its
        connection closed."""
        client, _ = self._listener.accept()
        request, files = _read(client)
        if request is None or not self._accepts(request):
            client.close()
            _close(files)
            return None
        server = os.getpid()
        if not (child := os.fork()):
            client.close()
            self._leave()
            _take_over(request, files, server)
            return request, files[3:]
        _close(files)
        with suppress(OSError):
            os.setpgid(child, child)  # here and in the child, as either may come first
        self._children[child] = client, request.on_loss
        _tell(client, child)
        return None

    def _reap(self) -> None:
        """Tell clients that their processes have ended."""
        with suppress(ChildProcessError):
            while child := (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client, _ = self._children.pop(child)
                _tell(client, os.waitstatus_to_exitcode(ended[1]))
                client.close()

    def _leave(self) -> None:
        """Close what is the server's, in a forked process."""
        signal.set_wakeup_fd(-1)
        for connection in (
            self._listener,
            self._woken,
            self._wake,
            *(client for client, _ in self._children.values()),
        ):
            connection.close()
        os.close(self._lifeline)


def _read(client: socket.socket) -> tuple[Request | None, list[int]]:
    """A client's request and files; no request where it has died or is another user."""
    files: list[int] = []
    with suppress(OSError, ValueError, struct.error):
        head, files, _, _ = socket.recv_fds(client, _NUMBER.size, MOST_FILES)
        text = client.recv(*_NUMBER.unpack(head), socket.MSG_WAITALL)
        if _is_same_user(client):
            return Request(**json.loads(text)), files
    return None, files


def _obey(child: int, client: socket.socket, on_loss: int) -> None:
    """Send signals to a child as its client says, and the last one where the client has died."""
    try:
        numbers = client.recv(4096)
    except OSError:
        numbers = b""
    for number in numbers or [on_loss]:
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(child, number)
            else:  # the default action of SIGTSTP does not stop a process outside the terminal's session
                os.kill(child, signal.SIGSTOP if number == signal.SIGTSTP else number)
    if not numbers:
        client.close()


def _tell(client: socket.socket, number: int) -> None:
    with suppress(OSError):  # the client has died
        client.sendall(_NUMBER.pack(number))


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Ids of the process and the user at the other end of a Unix socket. Raises AttributeError on systems without
    SO_PEERCRED."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * _NUMBER.size)
    return struct.unpack("3i", credentials)[:2]


def _is_same_user(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user; True where the system does not tell."""
    return not hasattr(socket, "SO_PEERCRED") or peer(connection)[1] == os.getuid()


def _at_death_of_parent(number: int) -> None:
    """Have this signal sent to this process when its parent dies; 0: none. No effect on other systems than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _take_over(request: Request, files: Sequence[int], server: int) -> None:
    """Make this process, forked from the process `server`, what a request says."""
    os.setpgid(0, 0)  # Ctrl-C of the terminal reaches the client alone, which tells it
    _at_death_of_parent(request.on_loss)
    if os.getppid() != server:
        os.kill(os.getpid(), request.on_loss)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for stream, file in enumerate(files[:3]):
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    if request.processors:
        os.sched_setaffinity(0, request.processors)
    sys.orig_argv[:], sys.argv[:] = request.command, request.arguments
    process.started = request.started
