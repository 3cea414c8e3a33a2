"""Simulates the input of a cluster, writes the results file, and repeats a recorded simulation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import click
import tomli_w

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import refuse_inputs
from hpctrip.cluster.results import ATTRIBUTES, ClusterRun, tables_of, write_cluster
from hpctrip.cluster.rows import Result
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.identity import uncompared_keys
from hpctrip.config.inputs import Tables, resolved, validate
from hpctrip.config.plugins import Extensions, Plugin
from hpctrip.config.sources import named_files, read_sources
from hpctrip.record.lock import check_name, default_path, locked
from hpctrip.record.verify import unequal
from hpctrip.record.writer import environment
from hpctrip.runner.experiment import merge_layers, read_user_input
from hpctrip.runner.replay import NotReplayable, other_files, run_plugins, with_files
from hpctrip.sim.grid.signals import SiteSignal


class ClusterInput(NamedTuple):
    """Validated input: the merged tables, the scenario, and the plug-ins, which have been run."""

    tables: Tables
    scenario: ClusterScenario
    extensions: Extensions


def read_cluster_input(
    paths: Iterable[str] = (), overrides: Iterable[str] = (), plugins: Iterable[str] = ()
) -> ClusterInput:
    """Merge TOML files and overrides, run the plug-ins, and validate the result.

    Without a path all keys have their defaults, which simulate synthetic jobs. The plug-ins named in the input and
    those in `plugins` are run before validation. Raises InputError with all faults.
    """
    layers, extensions = read_user_input(paths, overrides, plugins, ClusterScenario)
    extensions.run()
    tables = merge_layers({}, layers, ClusterScenario)
    return ClusterInput(tables, scenario_of(tables), extensions)


def scenario_of(tables: Tables) -> ClusterScenario:
    """The scenario of these tables, with resolved values. Raises InputError with all faults."""
    return validate(tables, ClusterScenario).resolve()


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
    tables, scenario, extensions = read_cluster_input(paths := list(paths), overrides, plugins)
    files = list(named_files(scenario))
    path = out or default_path(scenario.name)
    refuse_inputs([path], [*paths, *(file.value for file in files)])
    with locked(path, overwrite) as lock, lock:
        if lock.note:
            click.echo(lock.note, err=True)
        sources = [*(plugin.source for plugin in extensions.plugins), *(file.source() for file in files)]
        simulator = scenario.simulator()
        start = time.perf_counter()
        result = simulator.run()
        wall_s = time.perf_counter() - start
        is_synthetic = isinstance(simulator.carbon, SiteSignal) and simulator.carbon.grid.synthetic
        meta = {name: value for name, value in environment().items() if name in ATTRIBUTES} | {
            "input_toml": tomli_w.dumps(tables),
            "input_json": json.dumps(resolved(scenario)),
            "status": "finished",
            "scenario": scenario.name,
            "label": scenario.label or "",
            "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": scenario.seed,
            "neutral_keys": uncompared_keys(scenario),
            "sources": list(map(str, sources)),
            "packages": list(map(str, extensions.packages)),
            "simulated_start": scenario.start(simulator),
            "scheduler": scenario.scheduler.kind,
            "synthetic_jobs": scenario.jobs.synthetic,
            "synthetic_signals": ["carbon"] if is_synthetic else [],
            "wall_s": wall_s,
        }
        write_cluster(path, meta, result)
    return path


def replay(run: ClusterRun, plugins: Sequence[Plugin] = (), data: Sequence[str] = ()) -> list[Fault]:
    """Repeat a recorded simulation; returns one fault for each column that differs, none if all are confirmed.

    The arguments are those of `hpctrip.runner.replay.replay`. Raises NotReplayable if plug-ins or files are missing.
    """
    try:
        recorded = read_sources(run.meta["sources"])
        run_plugins(recorded, run, plugins)
        scenario = scenario_of(with_files(run.input, named_files(scenario_of(run.input)), data))
        if other := other_files(run, recorded, [file.source() for file in named_files(scenario)]):
            return other  # any further difference would follow from these
        result = scenario.simulator().run()
    except InputError as error:
        raise NotReplayable(str(error.faults[0])) from None
    return list(_differences(run, result))


def _differences(run: ClusterRun, result: Result) -> Iterator[Fault]:
    for table, columns in tables_of(result).items():
        frame = run.tables[table]
        for name, (expected, *_) in columns.items():
            place, recorded = f"{run.path}: /{table}/{name}", frame[name].to_numpy()
            if len(recorded) != len(expected):
                yield Fault(place, f"has {len(recorded):,} rows, simulated again {len(expected):,}")
                break
            if len(at := unequal(recorded, expected, 1e-9)):
                more = f" (and {len(at) - 1:,} more)" if len(at) > 1 else ""
                problem = f"is {recorded[at[0]]}, simulated again {expected[at[0]]}{more}"
                yield Fault(f"{place}, row {at[0]}", problem)
