"""Datagrams that are no heartbeats, sent by another process to the sockets of a job's watchdogs."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

NOBODY = 65534
"""The user that sends them where the tests run as root."""
Address = tuple[str, int]
STRANGE = [
    b"",
    b"\0",
    b"[" * 1024,
    b'["", "stacks", 0, "train", 1, false, 0.0]',
    b"x" * 60_000,
    *(secrets.token_bytes(num_bytes) for num_bytes in (16, 66, 1024)),
]
"""Datagrams that once ended a watchdog, and others."""
_SEND = f"""
import os, socket, sys
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
datagrams, addresses = eval(sys.stdin.read())
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20):
    for data in datagrams:
        for address in addresses:
            sender.sendto(data, address)
"""


def attack(datagrams: list[bytes], addresses: list[Address], within: Iterable[str] = ()) -> None:
    """Send each of these datagrams to each address, twenty times; as another user where the tests run as root. `within`
    is a command that runs the one behind it elsewhere."""
    command = [*within, sys.executable, "-S", "-c", _SEND]
    subprocess.run(command, input=repr((datagrams, addresses)), text=True, check=True)


def udp_addresses(pid: int) -> list[Address]:
    """The addresses at which the sockets of a process listen. Any user can read the ports of all of them."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    found = []
    for line in Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        host, port = words[1].split(":")
        if words[9] in inodes:
            found.append((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
    return found
