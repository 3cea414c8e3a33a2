"""Arguments of the figures of simulated clusters: results files."""

from __future__ import annotations

from collections.abc import Sequence

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.cluster.results import open_cluster
from hpctrip.figures.common.reading import RUNS_ARGUMENT, Source, Subject
from hpctrip.record.reader import open_runs


def _clusters(runs: Sequence[str]) -> list[Subject]:
    clusters = open_runs(runs, opened=open_cluster)
    if faults := [fault for run in clusters for fault in run.schema_faults()]:
        raise InputError(faults=faults)
    return [Subject(clusters, [run.path for run in clusters])]


def _one_cluster(runs: Sequence[str]) -> list[Subject]:
    ((clusters, files, _),) = _clusters(runs)
    if len(clusters) > 1 or not len(clusters[0].intervals):
        raise InputError(
            printable(" ".join(runs)), "is not one cluster with an interval", "name one results file"
        )
    return [Subject(clusters[0], files)]


CLUSTERS = Source("results files of simulated clusters", RUNS_ARGUMENT, _clusters, of_many=True)
ONE_CLUSTER = Source("one results file of a simulated cluster", RUNS_ARGUMENT, _one_cluster)
