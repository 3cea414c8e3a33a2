"""`hpctrip cluster`: from an input to a results file."""

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
    """Simulate the cluster of an input and write its results file; returns the path. Raises InputError for bad input,
    where a file is in the way, and where another job writes it."""
    check_name(out)
    given = read_cluster_input(paths := list(paths), overrides, plugins)
    path = out or default_path(given.scenario.name, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    refuse_inputs([path], [*paths, *(file.value for file in named_files(given.scenario))])
    with locked(path, overwrite) as lock, lock:
        if lock.note:
            click.echo(lock.note, err=True)
        _simulated(given, path)
    return path


def _simulated(given: ClusterInput, path: str) -> None:
    """Simulate it and write the file, which is this job's alone."""
    sources = given.sources()
    simulator = given.scenario.simulator()
    began = time.perf_counter()
    result = simulator.run()
    wall_s = time.perf_counter() - began
    about = environment()
    scenario = given.scenario
    meta = {
        name: about[name] for name in about if name not in ("torch_version", "mpi4py_version", "mpi_library")
    }
    meta |= {
        "input_toml": given.toml,
        "input_json": given.json,
        "status": "finished",
        "scenario": scenario.name,
        "label": scenario.label or "",
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": scenario.seed,
        "neutral_keys": neutral_keys(scenario),
        "sources": list(map(str, sources)),
        "packages": list(map(str, given.extensions.packages)),
        "scheduler": scenario.scheduler.kind,
        "synthetic_jobs": simulator.jobs.synthetic,
        "wall_s": wall_s,
    }
    write_cluster(path, meta, result)
