"""Exchanges over emulated links beside hpctrip's own formula for them: a check of the formula, not of a real WAN.

    sudo python benchmarks/links.py [--megabytes 8] [--repeats 3]

Each site is a network namespace with a virtual Ethernet cable to a bridge; `tc tbf` sets rates, and a relay process at
the receiver, which passes bytes on some time later, the latency. Plain TCP sockets send the bytes. The formula is that
of `network.kind = "matrix"` for the same links. It knows no headers (a full frame has 1,448 bytes of data in 1,514), no
start of TCP and no processes; where hosts are slow or loaded, the measured time is longer still. Nothing outside the
new namespaces is touched. Needs root, and `ip` and `tc` (iproute2), on Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing as mp
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hpctrip.sim.matrix import MatrixNetwork

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
RELAY, NODE = 7000, 7001
PIECE = 1 << 16


class Condition(NamedTuple):
    """Nodes that exchange; the last of a star is the aggregator."""

    name: str
    rates_mbps: list[float]
    """Of what each node sends; 0: not limited."""
    latency_s: list[float]
    """Of what each node receives."""
    exchange: str = "star"
    aggregator_mbps: float = 0.0
    """Of what the aggregator receives; 0: not limited."""


CONDITIONS = [
    Condition("star", [40, 80, 0], [0, 0, 0.03]),
    Condition("star, shared link", [200, 200, 0], [0, 0, 0.02], aggregator_mbps=60),
    Condition("ring", [40, 60, 80], [0.02, 0.02, 0.02], "ring"),
]


class Refused(Exception):
    """This machine has no such network."""


def call(*words: object) -> None:
    """Run a command of iproute2. Raises Refused with what it says."""
    ended = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Refused(f"{' '.join(map(str, words))}: {ended.stderr.strip()}")


def wire(condition: Condition, spaces: list[str]) -> None:
    """Connect namespaces, of which the first is the switch, by limited links."""
    switch, *nodes = spaces
    for space in spaces:
        call("ip", "netns", "add", space)
        call("ip", "-n", space, "link", "set", "lo", "up")
    call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
    call("ip", "-n", switch, "link", "set", "bridge", "up")
    for i, node in enumerate(nodes):
        port = f"port{i}"
        call("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node)
        call("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        call("ip", "-n", node, "address", "add", f"10.99.0.{i + 1}/24", "dev", "eth0")
        call("ip", "-n", node, "link", "set", "eth0", "up")
        limits = {(node, "eth0"): condition.rates_mbps[i]}
        if i == len(nodes) - 1:
            limits[switch, port] = condition.aggregator_mbps
        for (space, device), mbps in limits.items():
            if mbps:
                shape = ("root", "tbf", "rate", f"{mbps}mbit", "burst", "32kb", "limit", "16mb")
                call("tc", "-n", space, "qdisc", "add", "dev", device, *shape)


def enter(space: str) -> None:
    """Move this process into a namespace."""
    with open(f"/run/netns/{space}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), space)


def relay(space: str, latency_s: float) -> None:
    """Pass on what connections to RELAY send to NODE, so much later."""
    enter(space)
    server = socket.create_server(("0.0.0.0", RELAY))
    while True:
        source, _ = server.accept()
        sink, waiting = socket.create_connection(("127.0.0.1", NODE)), deque()
        threading.Thread(target=take, args=(source, waiting), daemon=True).start()
        threading.Thread(target=pass_on, args=(sink, waiting, latency_s), daemon=True).start()


def take(source: socket.socket, waiting: deque) -> None:
    """Note when bytes come; none: the end."""
    while data := source.recv(PIECE):
        waiting.append((time.monotonic(), data))
    waiting.append((time.monotonic(), b""))


def pass_on(sink: socket.socket, waiting: deque, latency_s: float) -> None:
    """Send them when their time has come."""
    while True:
        if not waiting:
            time.sleep(1e-4)
            continue
        came_s, data = waiting.popleft()
        time.sleep(max(0.0, came_s + latency_s - time.monotonic()))
        if not data:
            return sink.close()
        sink.sendall(data)


def receive(source: socket.socket, num_bytes: int) -> None:
    """Wait for so many bytes."""
    while num_bytes > 0:
        num_bytes -= len(source.recv(min(PIECE, num_bytes)))


def connect(node: int) -> socket.socket:
    """A connection to the relay of a node, as soon as that listens."""
    while True:
        try:
            return socket.create_connection((f"10.99.0.{node + 1}", RELAY))
        except ConnectionRefusedError:
            time.sleep(0.01)


def exchange(
    space: str, condition: Condition, me: int, num_bytes: int, begin: mp.Barrier, ended_s: mp.Queue
) -> None:
    """The part of a node in one exchange: when it began and ended goes to `ended_s`."""
    enter(space)
    num = len(condition.rates_mbps)
    in_ring, last = condition.exchange == "ring", me == num - 1
    server = socket.create_server(("0.0.0.0", NODE))
    begin.wait()  # all listen
    sink = connect((me + 1) % num if in_ring else num - 1) if in_ring or not last else None
    sources = [server.accept()[0] for _ in range(1 if in_ring else (num - 1) * last)]
    begin.wait()
    begun_s = time.monotonic()
    steps, size = (2 * (num - 1), num_bytes // num) if in_ring else (1, num_bytes)
    for _ in range(steps):
        sends = threading.Thread(target=sink.sendall, args=(bytes(size),)) if sink else None
        if sends:
            sends.start()
        for source in sources:
            receive(source, size)
        if sends:
            sends.join()
    ended_s.put((begun_s, time.monotonic()))
    begin.wait()  # nobody closes a connection before


def measured_s(condition: Condition, spaces: list[str], num_bytes: int) -> float:
    """Seconds of one exchange."""
    nodes, queue = spaces[1:], mp.Queue()
    begin = mp.Barrier(len(nodes))
    relays = [
        mp.Process(target=relay, args=pair, daemon=True)
        for pair in zip(nodes, condition.latency_s, strict=True)
    ]
    parts = [
        mp.Process(target=exchange, args=(node, condition, i, num_bytes, begin, queue), daemon=True)
        for i, node in enumerate(nodes)
    ]
    for process in relays + parts:
        process.start()
    begun_s, ended_s = zip(*(queue.get(timeout=120) for _ in parts), strict=True)
    for process in parts:
        process.join()
    for process in relays:
        process.terminate()
    return max(ended_s) - max(begun_s)


def formula_s(condition: Condition, num_bytes: int) -> float:
    """What hpctrip says of the same links."""
    names = [f"n{i}" for i in range(len(condition.rates_mbps))]
    lines = ["from,to,rtt_ms,bandwidth_mbps"]
    for start, mbps in zip(names, condition.rates_mbps, strict=True):
        for end, latency_s in zip(names, condition.latency_s, strict=True):
            lines.append(f"{start},{end},{2e3 * latency_s},{mbps or 1e6}")
    keys = {"exchange": condition.exchange}
    if condition.aggregator_mbps:
        keys["aggregator_bandwidth_bps"] = 1e6 * condition.aggregator_mbps
    sites = names if condition.exchange == "ring" else names[:-1]
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "links.csv")).write_text("\n".join(lines))
        network = MatrixNetwork(path=str(path), aggregator=names[-1], **keys)
        links = network.links(np.zeros(len(sites)), {"region": np.array(sites)})
    transfers = links.transfer_s(np.arange(len(sites)), 0.0, num_bytes, num_bytes)
    return float(transfers.together_s.max())


def main() -> None:
    """Measure every condition and print it beside the formula, or why that is not possible here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=8.0, help="size of an update")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    lacking = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or lacking:
        needed = f"{' and '.join(lacking)} (iproute2)" if lacking else "root on Linux"
        return print(f"links: skipped: needs {needed}")
    num_bytes, lines = round(1e6 * arguments.megabytes), []
    for number, condition in enumerate(CONDITIONS):
        num_spaces = 1 + len(condition.rates_mbps)
        spaces = [f"hpctrip-{os.getpid()}-{number}-{i}" for i in range(num_spaces)]
        try:
            wire(condition, spaces)
            took_s = np.median([measured_s(condition, spaces, num_bytes) for _ in range(arguments.repeats)])
        except Refused as error:
            return print(f"links: skipped: {error}")
        finally:
            for space in spaces:
                subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        told_s = formula_s(condition, num_bytes)
        lines.append(f"{condition.name:20}{took_s:12.3f}{told_s:12.3f}{took_s / told_s:8.3f}")
    print("emulated links beside our own formula, a check of the formula only; medians")
    return print(f"{'':20}{'measured s':>12}{'formula s':>12}{'ratio':>8}", *lines, sep="\n")


if __name__ == "__main__":
    main()
