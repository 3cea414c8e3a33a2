"""Machines of a kind: each has a network and a host name of its own (Linux namespaces), and a cable to a switch.

They have no names outside, and every one lives as long as its processes: nothing is left over, also where a test run is
killed. Files are those of the one machine below them, as on a cluster with a shared file system. As on Debian, each
machine takes its own name for 127.0.1.1, and only the others know its address.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

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

    def processes(self) -> dict[int, str]:
        """The processes on the machine, {pid: rank in its job, or ""}."""
        network, ranks = os.readlink(f"/proc/{self.init.pid}/ns/net"), {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(entry / "ns/net") == network and int(entry.name) != self.init.pid:
                    pairs = (line.partition("=") for line in (entry / "environ").read_text().split("\0"))
                    ranks[int(entry.name)] = {name: value for name, _, value in pairs}.get("PMI_RANK", "")
        return ranks

    def kill(self) -> None:
        """Every process there, the launcher's too."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Switched off for good."""
        self.kill()
        self.init.communicate()


class Machines:
    """So many machines, m1, m2, ... at 10.77.0.1, .2, ... on one switch."""

    def __init__(self, folder: Path, mpirun: str, size: int):
        self.folder, self.mpirun = folder, mpirun
        self.addresses = {f"m{i}": f"10.77.0.{i}" for i in range(1, size + 1)}
        (folder / "launcher").write_text(LAUNCHER.format(folder=folder))
        (folder / "launcher").chmod(0o755)
        self._all: list[Machine] = []
        try:
            self.switch = self._made("switch", "ip link add bridge type bridge\nip link set bridge up")
            self.machines = {name: self._connected(name) for name in self.addresses}
        except BaseException:
            self.close()
            raise

    def _made(self, name: str, setup: str) -> Machine:
        self._all.append(Machine(name, setup))
        return self._all[-1]

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

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

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

    def close(self) -> None:
        """Switch all off."""
        for machine in self._all:
            machine.close()


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


@contextlib.contextmanager
def connected(folder: Path, mpirun: str, size: int = 3):
    """So many machines; skips by name where they cannot be had."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"machines are built with {missing[0]}")
    if os.geteuid() != 0:
        pytest.skip("building machines takes root")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if "HYDRA" not in version:
        pytest.skip("this mpirun is not MPICH's")
    machines = Machines(folder, mpirun, size)
    try:
        yield machines
    finally:
        machines.close()
