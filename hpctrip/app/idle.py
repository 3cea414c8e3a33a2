"""Hosts that have nothing to train: how many, and the way out, in one line. `plan` and the run say the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpctrip.app.assignment import Assignment
from hpctrip.app.host import Host


def idle_hosts(host: Host, rounds: Sequence[Assignment], when: str) -> str:
    """The line, for the round of these that keeps the most hosts busy; empty where that is all of them, or where no
    round has anything to train. `when` says in words which rounds these are."""
    num_hosts = len(host.ranks.hosts)
    at_work = [len(np.unique(a.block_hosts)) for a in rounds]
    busy, num_sites, fullest = max(
        (hosts, len(a.blocks.positions), i) for i, (hosts, a) in enumerate(zip(at_work, rounds, strict=True))
    )
    if busy in (0, num_hosts):
        return ""
    blocks = rounds[fullest].blocks
    size = int(np.diff(blocks.starts).max())
    return (
        f"{num_hosts} hosts, but at most {_counted(len(blocks), 'block')} {when} ({_counted(num_sites, 'site')}, up to "
        f"{size} in one): {num_hosts - busy} hosts idle; {_way_out(host, size)}"
    )


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _way_out(host: Host, size: int) -> str:
    """Blocks of one site cannot be made smaller."""
    num_hosts, given = len(host.ranks.hosts), host.experiment.engine
    if size == 1:
        return "use fewer ranks, unless cohorts grow"
    if given.sites_per_block == "auto" and given.lanes != num_hosts:
        return f"use fewer ranks, or set engine.lanes = {num_hosts}"
    return "use fewer ranks, or a smaller engine.sites_per_block"
