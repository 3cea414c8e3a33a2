"""Three machines with a network between them: the same bits, and an end where one is cut off.

Each has a network and a host name of its own (Linux namespaces), and a cable to a switch. They have no names outside,
and every one lives as long as its processes: nothing is left over, also where a test run is killed. Files are those of
the one machine below them, as on a cluster with a shared file system. As on Debian, each machine takes its own name
for 127.0.1.1, and only the others know its address.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from datagrams import STRANGE, attack, udp_addresses
from processes import ranks_of

from hpctrip.record.checkpoint import newest
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

ROOT = Path(__file__).parents[2]
SCENARIO = """
sites.num_sites = 6
workload.train_samples = 120
workload.test_samples = 100
stop.target_accuracy = 1
checkpoint.every_rounds = 1
watchdog.silent_s = 3
"""

IS_WATCHED = importlib.util.find_spec("prometheus_client") is not None
"""Whether the jobs write a file for Prometheus (the extra [metrics])."""

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

TOOLS = ("ip", "unshare", "nsenter", "mount", "hostname")
LAUNCHER = """#!/bin/sh
[ "$1" = -x ] && shift
pid=$(cat "{folder}/$1.pid")
shift
exec nsenter --target "$pid" --net --uts --mount sh -c "$*"
"""
"""Replacement for ssh, called by mpirun as: [-x] MACHINE COMMAND."""


class Machine:
    """A process in namespaces of its own, which waits until its input is closed."""

    def __init__(self, name: str, setup: str):
        self.name = name
        command = ["unshare", "--net", "--uts", "--mount", "sh", "-ec", f"{setup}\necho ready\nexec cat"]
        self.init = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if self.init.stdout.readline() != "ready\n":
            pytest.skip(f"no namespaces here: {self.init.communicate()[1].strip()}")

    @property
    def inside(self) -> list[str]:
        """Prefix that runs a command on this machine."""
        return ["nsenter", "--target", str(self.init.pid), "--net", "--uts", "--mount"]

    def run(self, *words: object) -> None:
        """Run a command there, which must succeed."""
        subprocess.run([*self.inside, *map(str, words)], check=True, capture_output=True)

    def processes(self) -> list[int]:
        """The processes on the machine."""
        network, found = os.readlink(f"/proc/{self.init.pid}/ns/net"), []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(entry / "ns/net") == network and int(entry.name) != self.init.pid:
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """Switch it off for good, with every process there, the launcher's too."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.init.communicate()


class Machines:
    """Machines m1, m2 and m3 at 10.77.0.1, .2 and .3 on one switch."""

    addresses = {f"m{i}": f"10.77.0.{i}" for i in (1, 2, 3)}

    def __init__(self, folder: Path, mpirun: str, until_over: contextlib.ExitStack):
        self.folder, self.mpirun, self._until_over = folder, mpirun, until_over
        (folder / "launcher").write_text(LAUNCHER.format(folder=folder))
        (folder / "launcher").chmod(0o755)
        self.switch = self._made("switch", "ip link add bridge type bridge\nip link set bridge up")
        self.machines = {name: self._connected(name) for name in self.addresses}

    def _made(self, name: str, setup: str) -> Machine:
        return self._until_over.enter_context(contextlib.closing(Machine(name, setup)))

    def _connected(self, name: str) -> Machine:
        hosts = self.folder / f"{name}.hosts"
        addresses = {**self.addresses, name: "127.0.1.1", "localhost": "127.0.0.1"}
        hosts.write_text("".join(f"{address} {other}\n" for other, address in addresses.items()))
        machine = self._made(name, f"hostname {name}\nmount --bind '{hosts}' /etc/hosts\nip link set lo up")
        (self.folder / f"{name}.pid").write_text(str(machine.init.pid))
        pid = machine.init.pid
        self.switch.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.switch.run("ip", "link", "set", name, "master", "bridge", "up")
        machine.run("ip", "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
        return machine

    def cut(self, name: str) -> None:
        """Pull the cable of a machine: packets are lost without an error."""
        self.switch.run("ip", "link", "set", name, "down")

    def start(self, log: Path, ranks: Mapping[str, int], *command: object) -> Job:
        """mpirun on the first of these machines, with so many ranks on each."""
        hostfile = self.folder / f"{log.name}.machines"
        hostfile.write_text("".join(f"{name}:{number}\n" for name, number in ranks.items()))
        words = [self.mpirun, "-launcher", "ssh", "-launcher-exec", self.folder / "launcher"]
        words += ["-f", hostfile, "-n", sum(ranks.values()), *command]
        first = self.machines[next(iter(ranks))]
        with open(log, "w") as file:
            process = subprocess.Popen(
                [*first.inside, f"--wd={self.folder}", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "UCX_TLS": "tcp,self"},  # no shared memory: bytes take the wire
            )
        return Job(process, log)

    def wait_until_idle(self, limit_s: float = 60) -> None:
        """Until no process of any job is left on any machine."""
        deadline = time.monotonic() + limit_s
        while left := {name: ranks for name, one in self.machines.items() if (ranks := one.processes())}:
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.1)


class Job:
    """A launched job and what it has said so far."""

    def __init__(self, process: subprocess.Popen, log: Path):
        self.process, self._log = process, log

    @property
    def log(self) -> str:
        """Its output."""
        return self._log.read_text()

    def after(self, text: str, limit_s: float = 200) -> None:
        """Wait until it has said the text."""
        deadline = time.monotonic() + limit_s
        while text not in self.log:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def code(self, limit_s: float = 200) -> int:
        """Its exit code."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"hangs\n{self.log}")


@pytest.fixture
def machines(tmp_path, launch, monkeypatch):
    """The machines; skips where they cannot be built."""
    if launch.mpirun is None:
        pytest.skip("no mpirun on this machine")
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"machines are built with {missing[0]}")
    if os.geteuid() != 0:
        pytest.skip("building machines takes root")
    version = subprocess.run([launch.mpirun, "--version"], capture_output=True, text=True).stdout
    if "HYDRA" not in version:
        pytest.skip("this mpirun is not MPICH's")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("HPCTRIP_INTERFACE", raising=False)
    with contextlib.ExitStack() as until_over:
        yield Machines(tmp_path, launch.mpirun, until_over)


@pytest.fixture
def start(machines, tmp_path, scenario):
    """`start(ranks, rounds, *words)`: hpctrip on these machines, with results in run.h5."""
    logs = (tmp_path / f"log{number}" for number in itertools.count())

    def begin(ranks, rounds, *words):
        command = [sys.executable, "-m", "hpctrip", *(words or ("run", scenario)), "-o"]
        command += [f"stop.max_rounds={rounds}", "--out", tmp_path / "run.h5"]
        return machines.start(next(logs), ranks, *command)

    return begin


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO + "callbacks.prometheus = {}\n" * IS_WATCHED)
    return path


def machines_of_ranks(folder):
    """{rank: its machine} in the file for Prometheus."""
    text = (folder / "run.h5.prom").read_text()
    pairs = re.findall(r'host="(\w+)",phase="train",rank="(\d)"', text)
    return {rank: machine for machine, rank in pairs}


def test_machines_compute_the_bits_of_one_and_go_on_without_one_that_is_cut_off(
    machines, start, scenario, hpctrip, tmp_path
):
    job, out = start({"m1": 2, "m2": 1, "m3": 1}, 100_000), tmp_path / "run.h5"
    job.after("round    2")
    ranks = ranks_of(pid for machine in machines.machines.values() for pid in machine.processes())
    sockets = [address for rank in sorted(ranks) for address in udp_addresses(ranks[rank])]
    assert [host for host, _ in sockets] == ["10.77.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.3"]
    for _ in range(8):
        attack(STRANGE, sockets, within=machines.machines["m2"].inside)
        time.sleep(0.5)
    assert job.process.poll() is None and "watchdog" not in job.log, "every machine is heard, and no stranger"
    if IS_WATCHED:
        assert machines_of_ranks(tmp_path) == {"0": "m1", "1": "m1", "2": "m2", "3": "m3"}
    machines.cut("m3")  # nobody is told
    assert job.code() != 0
    assert "stuck: rank 3 on m3: last heard" in job.log, job.log
    machines.wait_until_idle()  # also m3, which finds rank 0 silent
    run = open_run(out)
    assert verify(run) == [] and "4 rank(s) on m1, m2, m3" in run.meta["starts"][0]
    rounds = newest(out)[0].state.round + 3
    again = start({"m2": 1, "m1": 2}, rounds, "resume", out, *["-o", "callbacks.prometheus={}"] * IS_WATCHED)
    assert again.code() == 0, again.log
    assert not IS_WATCHED or machines_of_ranks(tmp_path) == {"0": "m2", "1": "m1", "2": "m1"}
    alone = tmp_path / "alone.h5"
    assert hpctrip("run", scenario, "-o", f"stop.max_rounds={rounds}", "--out", alone).code == 0
    assert open_run(out).meta["params_digest"] == open_run(alone).meta["params_digest"]
