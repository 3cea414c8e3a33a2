"""What `verify` says of one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpctrip.base.errors import Fault
from hpctrip.base.plugins import Plugin
from hpctrip.base.text import printable
from hpctrip.record.cluster import ClusterRun, verify_cluster
from hpctrip.record.reader import Run
from hpctrip.record.verify import MOST_FAULTS, verify


@dataclass(frozen=True)
class Verdict:
    """The faults of one file; as a text it is one line."""

    path: str
    faults: list[Fault]
    """At most MOST_FAULTS."""
    replayed: bool
    """Whether the simulated half was computed anew."""
    not_replayed: str = ""
    """Why not, where that was asked for and the file is sound."""

    def __str__(self) -> str:
        more = " or more" if len(self.faults) >= MOST_FAULTS else ""
        if self.faults:
            said = f"{len(self.faults):,} fault(s){more}"
        elif self.not_replayed:
            said = f"ok, but not replayed: {printable(self.not_replayed)}"
        else:
            said = "ok" if self.replayed else "ok, not replayed"
        return f"{printable(self.path)}: {said}"

    def values(self) -> dict[str, Any]:
        """{name: value} for other programs."""
        return {"ok": not self.faults, **asdict(self)}


def verdict(run: Run | ClusterRun, replayed: bool, plugins: Sequence[Plugin], data: Sequence[str]) -> Verdict:
    """What is wrong with a file. Where it is sound by itself it is `replayed`, if asked for, with the
    `plugins` that the user named and the files that it names among `data`."""
    is_cluster = isinstance(run, ClusterRun)
    found = verify_cluster(run) if is_cluster else verify(run)
    if found or not replayed:
        return Verdict(str(run.path), found, replayed=False)
    from hpctrip.app.cluster.replay import simulated_again  # heavy
    from hpctrip.app.replay import NotReplayable, replay

    try:
        again = simulated_again(run, plugins, data) if is_cluster else replay(run, plugins, data)
        return Verdict(str(run.path), again, replayed=True)
    except NotReplayable as reason:
        return Verdict(str(run.path), [], replayed=False, not_replayed=str(reason))
