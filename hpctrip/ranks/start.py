"""The start of the ranks of a machine from one import of what is large.

Importing torch takes a second or two of processor time, and 41 ranks on two cores import it 41 times. So the first rank
of a machine starts a fork server, which imports it once, and every launched process asks there for its successor: a
process with its streams, environment, processors and connection to the launcher, which goes on as the rank and calls
MPI_Init. The launched process waits, hands on signals, and ends as its successor does.

A program calls `share_start` before its other imports, as the command line does. It works under launchers that are
known to bear it: MPICH's hydra and its relatives, and Open MPI's mpirun. Elsewhere, as under srun, and where a rank
differs from the first one in what a successor cannot take over, each rank imports for itself.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from hpctrip.base.errors import InputError
from hpctrip.base.fork_server import SIGNALS, Forked, Request, peer, readable, serve
from hpctrip.base.process import kept_signals, launched_rank
from hpctrip.ranks.watchdog.guardian import LOADING, SHARING, Guardian

VARIABLE = "HPCTRIP_SHARED_START"
"""Environment variable; 0: each rank imports for itself."""
FIRST_RANK_S = 60.0
"""Seconds within which the first rank of a machine starts the server, unless it runs another program."""
POLL_S = 0.02
"""Seconds between two looks for the server."""
PARENT_S = 2.0
"""Seconds between two looks whether the launcher lives."""
READ_S = 0.5
"""Seconds within which the launcher should read a message."""
OWN_VARIABLES = ("PMI", "MPI_", "MPIR_", "HYDI_", "OMPI_", "PRTE_", "CUDA_VISIBLE_DEVICES")
"""Beginnings of the environment variables in which ranks of one machine may differ: nothing reads them in an import."""


def share_start(prepare: Callable[[], None]) -> None:
    """Return as a process forked from one that has called `prepare`, or where that cannot be shared as the same
    process. The launched process of a rank that goes on elsewhere never returns."""
    job, index = _local_job()
    if not job or os.environ.get(VARIABLE) == "0":
        return
    try:
        guardian = Guardian().__enter__()
        Guardian.handed_over = guardian.pipe
        address = f"\0hpctrip-{os.getuid()}-{job}"
        if index:
            guardian.reach(SHARING)
        elif _serve(address, prepare, guardian):
            return
        successor = _successor(address, guardian)
    except (InputError, OSError):  # the guardian of the command reports a bad limit
        return
    _follow(successor, guardian)


def _local_job() -> tuple[str, int]:
    """(name of this job on this machine, index of this rank among its ranks here); no name where the launcher is not
    known, or has started one rank here."""
    variables = os.environ
    with suppress(KeyError, ValueError, OSError, AttributeError):
        if int(variables.get("OMPI_COMM_WORLD_LOCAL_SIZE", 1)) > 1:
            return variables["PMIX_NAMESPACE"], int(variables["OMPI_COMM_WORLD_LOCAL_RANK"])
        if int(variables.get("MPI_LOCALNRANKS", 1)) > 1:
            # the other end is hydra's process on this machine, also where a script stands between it and this one
            with socket.socket(fileno=os.dup(int(variables["PMI_FD"]))) as launcher:
                proxy, _ = peer(launcher)
            return f"hydra-{proxy}", int(variables["MPI_LOCALRANKID"])
    return "", 0


def _facts() -> dict[str, str]:
    """The state of this process that its successor would inherit from the server, or on which imports depend."""
    environment = sorted(item for item in os.environ.items() if not item[0].startswith(OWN_VARIABLES))
    namespaces = sorted((path.name, os.readlink(path)) for path in Path("/proc/self/ns").iterdir())
    maps = Path("/proc/self/numa_maps")
    return {
        "command": repr((sys.executable, sys.orig_argv)),
        "environment": repr(environment),
        "limits": Path("/proc/self/limits").read_text(),
        "groups": Path("/proc/self/cgroup").read_text(),
        "namespaces": repr(namespaces),
        "memory policy": maps.read_text().split(maxsplit=2)[1] if maps.exists() else "",
        "niceness": str(os.getpriority(os.PRIO_PROCESS, 0)),
    }


def _serve(address: str, prepare: Callable[[], None], guardian: Guardian) -> bool:
    """Start the server. Returns False in this process, and True in the successors that the server forks."""
    facts = _facts()
    lifeline, _ = os.pipe()  # the other end stays open as long as this process lives
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1024)
        if os.fork():
            os.close(lifeline)
            return False
        server = os.getpid()
        try:
            guardian.reach(LOADING)
            _close_all_but(listener.fileno(), lifeline)
            _, files = serve(listener, lifeline, prepare, lambda request: request.facts == facts)
        except BaseException:
            if os.getpid() == server:  # a package is missing: each rank imports for itself, and reports that
                os._exit(1)
            raise
    Guardian.handed_over, *launcher = files
    if launcher:
        os.environ["PMI_FD"] = str(launcher[0])
    Path("/proc/self/comm").write_text(f"hpctrip {launched_rank()}")  # its name in `top`
    return True


def _close_all_but(*kept: int) -> None:
    """Close all files of this process but its streams and these."""
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > 2 and file not in kept:
            with suppress(OSError):  # that of the list itself
                os.close(file)


def _successor(address: str, guardian: Guardian) -> Forked:
    """The successor of this process. Raises OSError where the server refuses it or there is no server."""
    files = [0, 1, 2, guardian.pipe, *([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])]
    request = Request(facts=_facts())
    patience = time.monotonic() + FIRST_RANK_S
    while True:
        try:
            return Forked(address, request, files)
        except ConnectionRefusedError:
            if time.monotonic() > patience:
                raise
            time.sleep(POLL_S)


def _follow(successor: Forked, guardian: Guardian) -> NoReturn:
    """Hand on signals to the successor of this process, and end as it does, or when the launcher dies."""
    os.close(guardian.pipe)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the guardian and the server leave no zombies
    # Python writes the number of each signal there, for the server
    signal.set_wakeup_fd(successor.fileno(), warn_on_full_buffer=False)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop_too if number == signal.SIGTSTP else _do_nothing)
    for number in kept_signals():
        successor.signal(number)
    launcher = os.getppid()
    while not readable([successor], PARENT_S):
        if os.getppid() != launcher:
            os.kill(os.getpid(), signal.SIGKILL)
    if (code := successor.wait()) < 0:
        who = f"hpctrip: rank {launched_rank()} on {socket.gethostname()}: its process {successor.pid}"
        os.write(2, f"{who} died by {signal.Signals(-code).name}\n".encode())
        time.sleep(READ_S)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL has no other action
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _do_nothing(*_: object) -> None:
    """A handler: without one, no number of the signal would be written."""


def _stop_too(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
