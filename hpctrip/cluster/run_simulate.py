"""Implementation of `hpctrip cluster`: simulates an input and writes the results file."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

import click

from hpctrip.base.io import refuse_inputs
from hpctrip.cluster.results import write_cluster
from hpctrip.cluster.run_input import ClusterInput, read_cluster_input
from hpctrip.config.identity import neutral_keys
from hpctrip.config.sources import named_files
from hpctrip.record.environment import environment
from hpctrip.runner.resume import check_name, default_path, locked


def simulate(
    paths: Iterable[str],
    overrides: Iterable[str],
    out: str | None,
    overwrite: bool,
    plugins: Iterable[str] = (),
) -> str:
    """Simulate the cluster of an input and write its results file; returns the path of that file.

    Raises InputError if the input is invalid, if the file exists and `overwrite` is false, or if another job is writing
    the file.
    """
    check_name(out)
    cluster_input = read_cluster_input(paths := list(paths), overrides, plugins)
    path = out or default_path(cluster_input.scenario.name, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    refuse_inputs([path], [*paths, *(file.value for file in named_files(cluster_input.scenario))])
    with locked(path, overwrite) as lock, lock:
        if lock.note:
            click.echo(lock.note, err=True)
        _simulate_and_write(cluster_input, path)
    return path


def _simulate_and_write(cluster_input: ClusterInput, path: str) -> None:
    """Simulate the cluster and write the results file, whose lock the caller holds."""
    sources = cluster_input.sources()
    simulator = cluster_input.scenario.simulator()
    start = time.perf_counter()
    result = simulator.run()
    wall_s = time.perf_counter() - start
    versions = environment()
    scenario = cluster_input.scenario
    meta = {
        name: versions[name]
        for name in versions
        if name not in ("torch_version", "mpi4py_version", "mpi_library")
    }
    meta |= {
        "input_toml": cluster_input.toml,
        "input_json": cluster_input.json,
        "status": "finished",
        "scenario": scenario.name,
        "label": scenario.label or "",
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": scenario.seed,
        "neutral_keys": neutral_keys(scenario),
        "sources": list(map(str, sources)),
        "packages": list(map(str, cluster_input.extensions.packages)),
        "scheduler": scenario.scheduler.kind,
        "synthetic_jobs": simulator.jobs.synthetic,
        "wall_s": wall_s,
    }
    write_cluster(path, meta, result)
