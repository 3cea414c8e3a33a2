"""The fork server of a study: its runs start in processes that have loaded what a run needs."""

from __future__ import annotations

import atexit
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile

from hpctrip.base.fork_server import Forked, Request, serve


class RunServer:
    """Forks processes for the runs of this process's studies, as long as it lives. The server starts with the first."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._address: str | bytes = ""
        self._lifeline = -1

    def fork(self, request: Request, log: int) -> Forked:
        """A process that executes the command `request.arguments`; one of hpctrip's is not loaded anew. Its output goes
        to the open file `log`. Raises OSError where none can be forked."""
        with open(os.devnull) as nothing:
            files = [nothing.fileno(), log, log]
            if self._process is None:
                self._start(request)
            try:
                return Forked(self._address, request, files)
            except OSError:  # it has been killed
                self.close()
                self._start(request)
                return Forked(self._address, request, files)

    def close(self) -> None:
        """End the server. Its children go on."""
        if self._process is not None:
            os.close(self._lifeline)
            if isinstance(self._address, str):
                shutil.rmtree(os.path.dirname(self._address), ignore_errors=True)
            self._process = None

    def _start(self, request: Request) -> None:
        lifeline, self._lifeline = os.pipe()
        with socket.socket(socket.AF_UNIX) as listener:
            # Linux chooses a name that is no file: the path of a temporary folder may be too long for a socket
            own = sys.platform == "linux"
            listener.bind("" if own else os.path.join(tempfile.mkdtemp(prefix="hpctrip-"), "socket"))
            self._address = listener.getsockname()
            listener.listen()
            files = listener.fileno(), lifeline
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *map(str, files)],
                stdin=subprocess.DEVNULL,
                pass_fds=files,
                env={**request.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        os.close(lifeline)


RUN_SERVER = RunServer()
"""The server of this process."""
atexit.register(RUN_SERVER.close)


def main(listener: int, lifeline: int) -> None:
    """The main function of the server process and of those that it forks."""
    from hpctrip.runner.preload import preload

    request, _ = serve(socket.socket(fileno=listener), lifeline, preload)
    if request.arguments[0] != "hpctrip":
        os.execvp(request.arguments[0], request.arguments)
    runpy.run_module("hpctrip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
