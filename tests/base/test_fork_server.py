"""A process that is forked by a server for its client: what it takes over, and that neither outlives the other."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpctrip.base.fork_server import Forked, Request, readable

ROOT = Path(__file__).parents[2]
SERVER = """
import os, socket, sys
from hpctrip.base.fork_server import serve
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
request, files = serve(listener, 0, lambda: None, lambda request: not request.facts)
exec(request.arguments[0])
"""
TELLS = """
import json, os, sys
told = {
    "command": [sys.orig_argv, sys.argv], "variable": os.environ["WHO"], "others": "PATH" in os.environ,
    "folder": os.getcwd(), "streams": [sys.stdin.read(), "out"], "group": os.getpgid(0) == os.getpid(),
}
print(json.dumps(told))
sys.stdout.flush()
os.write(files[0], b"more")
"""
SLEEPS = "import time; os.write(1, b'ready'); time.sleep(60)"


@pytest.fixture
def server(tmp_path):
    """(address, process) of a server that executes the first argument of a request; its stdin is the lifeline."""
    address = str(tmp_path / "socket")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == b"listens\n"
    yield address, process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


class Process:
    """A forked process with its pipes."""

    def __init__(self, address, text, files=(), **taken):
        ours, out = os.pipe()
        with open(os.devnull) as nothing:
            self.forked = Forked(
                address, Request(arguments=[text], **taken), [nothing.fileno(), out, 2, *files]
            )
        os.close(out)
        self.out = os.fdopen(ours)
        self.wait, self.signal, self.pid = self.forked.wait, self.forked.signal, self.forked.pid

    def is_ready(self):
        """Wait until it has written the word."""
        return self.out.read(5) == "ready"


def has_ended(pid):
    """Whether a process ends soon."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_process_takes_over_what_the_request_says(server, tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    read, written = os.pipe()
    process = Process(
        server[0],
        TELLS,
        [written],
        command=["python", "a study"],
        environment={"WHO": "\udcff"},
        folder=str(folder),
    )
    told = json.loads(process.out.read())
    assert told == {
        "command": [["python", "a study"], [TELLS]],
        "variable": "\udcff",
        "others": False,
        "folder": str(folder),
        "streams": ["", "out"],
        "group": True,
    }
    assert process.wait() == 0 and os.read(read, 10) == b"more"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity of processes here")
def test_a_process_has_the_processors_of_its_client(server):
    last = max(os.sched_getaffinity(0))
    process = Process(server[0], "print(os.sched_getaffinity(0))", processors=[last])
    assert process.out.read() == f"{{{last}}}\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.kill(os.getpid(), 15)", -15), ("1 / 0", 1)],
)
def test_a_client_learns_how_its_process_has_ended(server, text, code, capfd):
    process = Process(server[0], text)
    assert readable([process.forked], 20) and not process.forked.is_alive()
    assert process.wait() == code
    assert ("ZeroDivisionError" in capfd.readouterr().err) == (code == 1)


def test_signals_reach_the_process_and_kill_its_group(server):
    counts = "import signal; signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'usr1-'));" + SLEEPS
    process = Process(server[0], counts)
    assert process.is_ready() and process.forked.is_alive()
    process.signal(signal.SIGUSR1)
    assert process.out.read(5) == "usr1-"
    process.signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT  # Python's end by a KeyboardInterrupt
    with_child = Process(server[0], f"child = os.fork(); {SLEEPS}")
    assert with_child.is_ready() and with_child.is_ready()
    with_child.signal(signal.SIGKILL)
    assert with_child.wait() == -9
    assert with_child.out.read() == ""  # its child has closed the pipe, too


def test_a_request_that_the_server_does_not_accept_is_refused(server, tmp_path):
    with pytest.raises(ConnectionAbortedError):
        Process(server[0], "", facts={"other": "facts"})
    with pytest.raises(FileNotFoundError):
        Process(str(tmp_path / "nobody"), "")
    assert Process(server[0], "").wait() == 0


CLIENT = """
import os, sys, time
from hpctrip.base.fork_server import Forked, Request
forked = Forked(sys.argv[1], Request(arguments=[sys.argv[2]], on_loss=int(sys.argv[3])), [0, 1, 2])
time.sleep(60)
"""
CHECKPOINTS = """
import signal
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"saved"), os._exit(0)))
os.write(1, f"{os.getpid()}\\n".encode())
import time; time.sleep(60)
"""


@pytest.mark.parametrize("lost", ["client", "server"])
@pytest.mark.parametrize(("on_loss", "last"), [(signal.SIGKILL, b""), (signal.SIGTERM, b"saved")])
@pytest.mark.skipif(sys.platform != "linux", reason="a death of the parent is signalled on Linux")
def test_no_process_is_left_where_its_client_or_the_server_is_killed(server, lost, on_loss, last):
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, server[0], CHECKPOINTS, str(int(on_loss))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    pid = int(client.stdout.readline())
    {"client": client, "server": server[1]}[lost].kill()
    assert has_ended(pid)
    client.kill()
    assert client.communicate()[0] == last


def test_a_server_that_is_killed_has_killed_its_processes(server):
    process = Process(server[0], SLEEPS)
    assert process.is_ready()
    server[1].kill()
    assert process.wait() == -signal.SIGKILL


def test_a_server_ends_with_its_last_process_once_nobody_can_ask(server):
    process = Process(server[0], SLEEPS)
    assert process.is_ready()
    server[1].stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        server[1].wait(0.3)
    process.signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM and server[1].wait(20) == 0
