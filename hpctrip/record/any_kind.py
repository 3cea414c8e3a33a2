"""Results files of any kind, for the commands that take them all."""

from __future__ import annotations

from pathlib import Path

from hpctrip.record import cluster, schema
from hpctrip.record.admission import admitted
from hpctrip.record.cluster import ClusterRun, open_cluster
from hpctrip.record.reader import Run, open_run


def open_any(path: str | Path) -> Run | ClusterRun:
    """Read one results file of a federated run or of a cluster. Raises InputError as `open_run`."""
    with admitted(path, schema.FORMAT, cluster.FORMAT) as file:
        is_cluster = file.attrs["format"].decode() == cluster.FORMAT
    return open_cluster(path) if is_cluster else open_run(path)
