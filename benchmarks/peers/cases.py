"""Writes a case for all contenders: data, input file, and what hpctrip will draw from its seed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tomli_w
import torch

from hpctrip.base.rng import stream
from hpctrip.ranks.base import Ranks
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.step import State

if TYPE_CHECKING:
    from common import Shape

HERE = Path(__file__).parent


def write_case(folder: Path, name: str, shape: Shape, num_rounds: int) -> None:
    """Data, input file, and what hpctrip will draw from its seed: initial weights and sample orders."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(asdict(shape)))
    for part, size in (("train", shape.num_sites * shape.samples), ("test", shape.test_samples)):
        draw = stream(0, f"peers/{part}")
        np.save(folder / f"{part}_images.npy", draw.integers(256, size=(size, 28, 28), dtype=np.uint8))
        np.save(folder / f"{part}_labels.npy", draw.integers(62, size=size))
    everyone = shape.cohort == shape.num_sites
    tables = {
        "name": name,
        "plugins": [str(HERE / "plugin.py")],
        "sites": {"num_sites": shape.num_sites},
        "workload": {"kind": "peers", "folder": str(folder)},
        "partition": {"kind": "iid", "samples_per_site": shape.samples},
        "policy": {"kind": "all"} if everyone else {"kind": "random", "k": shape.cohort},
        "train": {"lr": shape.lr, "batch_size": shape.batch_size},
        "server": {"kind": "fedavg-kept"},
        "stop": {"target_accuracy": 1.0, "max_rounds": num_rounds},
    }
    path = folder / "hpctrip.toml"
    path.write_text(tomli_w.dumps(tables))
    experiment = read_input([str(path)]).experiment
    task, ranks = experiment.workload.task(0), Ranks()
    host = Host(experiment, experiment.checked_num_sites(), task, ranks, torch.device("cpu"))
    np.save(folder / "params.npy", host.initial_params.numpy())
    simulation, state, orders = Aggregator(host).simulation, State(), []
    for _ in range(num_rounds):
        draft = simulation.begin(state)
        orders.append([np.concatenate(host.visits(int(site), draft.round)) for site in draft.cohort])
        state, _ = simulation.finish(draft, Outcome.assumed(np.ones(len(draft.cohort))))
    np.save(folder / "orders.npy", np.array(orders))
