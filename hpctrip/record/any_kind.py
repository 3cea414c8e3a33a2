"""Results files of any kind, for the commands that take them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.record import cluster, schema
from hpctrip.record.admission import admitted
from hpctrip.record.cluster import ClusterRun, diff_clusters, open_cluster
from hpctrip.record.diff import Difference, diff
from hpctrip.record.facts import facts
from hpctrip.record.reader import Run, open_run


def open_any(path: str | Path) -> Run | ClusterRun:
    """Read one results file of a federated run or of a cluster. Raises InputError as `open_run`."""
    with admitted(path, schema.FORMAT, cluster.FORMAT) as file:
        is_cluster = file.attrs["format"].decode() == cluster.FORMAT
    return open_cluster(path) if is_cluster else open_run(path)


def facts_of(run: Run | ClusterRun) -> dict[str, Any]:
    """What is known of it, as `facts`."""
    return cluster.facts(run) if isinstance(run, ClusterRun) else facts(run)


def differences(a: Run | ClusterRun, b: Run | ClusterRun) -> list[Difference]:
    """What differs; empty: equal. Raises InputError where they are not of one kind, or lack columns."""
    if isinstance(a, ClusterRun) and isinstance(b, ClusterRun):
        return diff_clusters(a, b)
    if isinstance(a, ClusterRun) or isinstance(b, ClusterRun):
        problem = "one is a cluster's, the other a federated run's"
        raise InputError(f"{a.path}, {b.path}", problem, "name two of a kind")
    return diff(a, b)
