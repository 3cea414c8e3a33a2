"""A stranger: a user who has no part in a job, but may send datagrams to the sockets of its watchdogs, write results
files and checkpoints that others receive, and write into folders that all may use."""

import contextlib
import dataclasses
import json
import os
import secrets
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from hpctrip.app.experiment import laid_over
from hpctrip.record.checkpoint import generations, newest, pack
from hpctrip.record.reader import open_run
from hpctrip.record.schema import Column
from hpctrip.record.writer import write_run

NOBODY = 65534
"""The user that a stranger is where the tests run as root."""
OWNERS = [None, NOBODY]
"""Whose the files are: of the user who runs the tests, or of a stranger."""
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
_BECOME = f"""
import fcntl, glob, json, os, socket, sys, time
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
"""
_SEND = f"""{_BECOME}
datagrams, addresses = eval(sys.stdin.read())
stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20):
    for data in datagrams:
        for address in addresses:
            stranger.sendto(data, address)
"""


def attack(datagrams: list[bytes], addresses: list[Address], within: Iterable[str] = ()) -> None:
    """Send each of these datagrams to each address, twenty times; as another user where the tests run as root. `within`
    is a command that runs the one behind it elsewhere."""
    command = [*within, sys.executable, "-S", "-c", _SEND]
    subprocess.run(command, input=repr((datagrams, addresses)), text=True, check=True)


def udp_addresses(pid: int) -> list[Address]:
    """Where the sockets of a process listen. Any user can read the ports of all of them."""
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


def stranger(code: str, folder: Path) -> subprocess.Popen:
    """A process that runs this code, with the modules of `_BECOME`, in a folder; as another user where the tests run as
    root, who cannot reach what lies above that folder."""
    command = [sys.executable, "-S", "-c", _BECOME + code]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=folder, text=True, **pipes)


def owned_by(folder: Path, owner: int | None) -> None:
    """As if another user had written all that lies there."""
    if owner is not None:
        if os.geteuid():
            pytest.skip("only root can give files away")
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, owner, owner)


def forge(results: Path, tables: Mapping[str, Any], **about: list[str]) -> None:
    """Lay these tables over the input that a results file and its checkpoints hold, and replace what they say of
    themselves, as whoever can write there can."""
    found, _, _ = newest(results)
    text = tomli_w.dumps(laid_over(tomllib.loads(found.input_toml), [tables]))
    for file in generations(results):
        file.write_bytes(pack(dataclasses.replace(found, input_toml=text, about={**found.about, **about})))
    run = open_run(results)
    units, docs = run.sites.attrs["units"], run.sites.attrs["descriptions"]
    sites = {name: Column(run.sites[name].to_numpy(), units[name], docs[name]) for name in run.sites}
    given = {"input_toml": text, "input_json": json.dumps(laid_over(run.input, [tables]))}
    write_run(results, run.meta | given | about, sites, run.history())
