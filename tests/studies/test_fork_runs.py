"""The server from which the runs of a study are forked."""

import os
import sys

import pytest

from hpctrip.base.fork_server import Request
from hpctrip.studies.fork_runs import RunServer


@pytest.mark.skipif(sys.platform != "linux", reason="there a socket is a file")
def test_a_server_that_was_killed_is_started_again(tmp_path, monkeypatch):
    """In a temporary folder whose path is too long for a socket."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 30)))
    server, log = RunServer(), tmp_path / "log"

    def run(text):
        environment = {**os.environ, "SAYS": text}
        request = Request(
            arguments=["sh", "-c", "echo $SAYS $PPID; exit 3"], environment=environment, folder=str(tmp_path)
        )
        with log.open("a") as file:
            assert server.fork(request, file.fileno()).wait() == 3
        return log.read_text().splitlines()[-1].split()

    says, first = run("one")
    assert says == "one" and run("two") == ["two", first]
    os.kill(int(first), 9)
    server._process.wait()
    says, second = run("three")
    assert says == "three" and second != first
    process = server._process
    server.close()
    assert process.wait(20) == 0
    server.close()
