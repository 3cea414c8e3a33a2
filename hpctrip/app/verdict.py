"""What `verify` says of one file."""

from __future__ import annotations

from collections.abc import Sequence

from hpctrip.base.errors import Fault
from hpctrip.base.plugins import Plugin
from hpctrip.base.text import printable
from hpctrip.record.cluster import ClusterRun, verify_cluster
from hpctrip.record.reader import Run
from hpctrip.record.verify import MOST_FAULTS, verify


def verdict(
    run: Run | ClusterRun, replayed: bool, plugins: Sequence[Plugin], data: Sequence[str]
) -> tuple[list[Fault], str]:
    """The faults of a file and one line about it. Where it is sound by itself it is `replayed`, if asked for, with the
    `plugins` that the user named and the files that it names among `data`."""
    is_cluster = isinstance(run, ClusterRun)
    found = verify_cluster(run) if is_cluster else verify(run)
    but = "" if replayed else ", not replayed"
    if replayed and not found:
        from hpctrip.app.cluster.replay import simulated_again  # heavy
        from hpctrip.app.replay import NotReplayable, replay

        try:
            found = simulated_again(run, plugins, data) if is_cluster else replay(run, plugins, data)
        except NotReplayable as reason:
            but = f", but not replayed: {printable(str(reason))}"
    more = " or more" if len(found) >= MOST_FAULTS else ""
    said = f"{len(found):,} fault(s){more}" if found else f"ok{but}"
    return found, f"{printable(str(run.path))}: {said}"
