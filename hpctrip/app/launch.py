"""`run`: from an input to a results file, on whatever ranks there are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import torch

from hpctrip.app.config import Input, read_input, resolve
from hpctrip.app.experiment import Run, State
from hpctrip.app.loop import train
from hpctrip.app.progress import Progress
from hpctrip.learn.params import digest
from hpctrip.ranks.base import Ranks, hostname, open_ranks, together, with_transport
from hpctrip.ranks.device import choose_device
from hpctrip.record.environment import environment
from hpctrip.record.writer import Recorder, check_writable


def launch(paths: Iterable[str], overrides: Iterable[str], out: str | None, overwrite: bool) -> None:
    """Read the input, train, write the results file. Every rank calls it; rank 0 reports.

    Raises InputError for bad input (on rank 0; the other ranks end quietly) and DivergedError.
    """
    with open_ranks() as first_ranks:
        tables = first_ranks.lead(lambda: read_input(paths, overrides).tables)
        given = resolve(tables)
        experiment = given.experiment
        with with_transport(first_ranks, experiment.ranks.transport) as ranks:
            path = ranks.lead(lambda: _results_path(out, experiment.name, overwrite))
            torch.set_num_threads(experiment.ranks.threads)
            ranks.lead(lambda: experiment.workload.prepare_data(experiment.seed))
            if ranks.local_host == 0:  # a cache on a node's own disk has to be filled there too
                experiment.workload.prepare_data(experiment.seed)
            device = choose_device(experiment.ranks.device, ranks)
            task = experiment.workload.task(experiment.seed)
            run = together(ranks, lambda: Run(experiment, task, ranks, device))
            hosts = ranks.gather((hostname(), _device_name(device)))
            if not ranks.is_aggregator:
                train(run, lambda state, params: None)
                return
            meta = _meta(run, given, ranks, hosts or [])
            recorder = Recorder(path, meta, _site_columns(run))
            state = State()
            with Progress(run, path) as progress:

                def observe(after: State, params: torch.Tensor) -> None:
                    nonlocal state
                    state = after
                    recorder.record(state.history)
                    progress.round(state)

                try:
                    state, params = train(run, observe)
                except BaseException as error:
                    reason = f"{type(error).__name__}: {error}".splitlines()[0]
                    if state.history.rows:
                        recorder.close(state.history, {"status": "failed", "stop_reason": reason})
                    raise
                final = {
                    "status": "finished",
                    "stop_reason": state.stop_reason,
                    "params_digest": digest(params),
                    "rank_phases": run.rank_phases(state.history),
                }
                recorder.close(state.history, final)
            progress.finished(state, final["params_digest"])


def _results_path(out: str | None, name: str, overwrite: bool) -> str:
    path = out or f"results/{name}-{datetime.now():%Y%m%d-%H%M%S}.h5"
    check_writable(path, overwrite)
    return path


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _meta(run: Run, given: Input, ranks: Ranks, hosts: list[tuple[str, str]]) -> dict[str, Any]:
    experiment = run.experiment
    target = experiment.stop.target_accuracy
    return {
        **environment(ranks.library),
        "input_toml": given.toml,
        "input_json": given.json,
        "scenario": experiment.name,
        "label": experiment.label or "",
        "policy": experiment.policy.kind,
        "seed": experiment.seed,
        "target_accuracy": math.nan if target is None else target,
        "data_source": run.task.source,
        "synthetic_data": run.task.synthetic,
        "synthetic_power": run.world.supply.synthetic,
        "update_bytes": run.world.update_bytes,
        "num_params": len(run.initial_params),
        "num_ranks": ranks.size,
        "transport": ranks.name,
        "engine": run.engine.name,
        "hosts": [host for host, _ in hosts],
        "devices": [device for _, device in hosts],
    }


def _site_columns(run: Run) -> dict[str, tuple[np.ndarray, str, str]]:
    world = run.world
    columns = {
        "site": (np.arange(len(world)), "1", "site index"),
        "distance_m": (world.distance_m, "m", "distance to the aggregator d_i"),
        "bandwidth_bps": (world.bandwidth_bps, "bit/s", "WAN bandwidth B_i"),
        "delay_s": (world.delay_s, "s", "communication delay L_i of the site alone (Eq. 3)"),
        "num_samples": (
            np.array([len(shard) for shard in run.shards]),
            "samples",
            "samples of the site's shard",
        ),
        "compute_s": (
            run.experiment.timing.seconds_per_sample * run.num_visits,
            "s",
            "modelled compute time c_i of one round at full power",
        ),
        "power_fraction": (world.power_fraction(0.0), "1", "power fraction P_i at time 0"),
    }
    for name, values in world.supply.describe().items():
        columns[name] = (values, "1", f"{name.replace('_', ' ')} of the site's power trace")
    return columns
