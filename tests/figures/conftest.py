"""Small results files written with the real writer, so small that their times can be checked by hand."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hpctrip.base.units import HOUR_S, MILE_M
from hpctrip.record.schema import Column
from hpctrip.record.writer import write_run
from hpctrip.runner.experiment import resolve
from hpctrip.sim.rounds import Candidates, CohortRound, History, RoundRow

SPENT = {"energy_j": 3.6e6, "compute_energy_j": 3.6e6, "wait_energy_j": 0.0, "comm_energy_j": 0.0}
"""Of a round, where nothing else is said."""


def row(number, start_h, end_h, k, accuracy, vote=0, **spent) -> RoundRow:
    """One round of the sites 0..k-1; two thirds of its time is computing."""
    seconds = (end_h - start_h) * HOUR_S
    sites = np.arange(k)
    ones = np.ones(k)
    cohort = CohortRound(sites, 100 * (sites + 1), *[ones] * 7, np.zeros(k, dtype=np.int64), *[ones] * 3)
    weighed = np.array([max(1, vote - 1), max(1, vote)])
    return RoundRow(
        round=number,
        clock_start_s=start_h * HOUR_S,
        clock_s=end_h * HOUR_S,
        makespan_s=seconds,
        num_sites=k,
        num_arrived=k,
        voted_num_sites=vote,
        straggler=k - 1,
        straggler_compute_s=seconds * 2 / 3,
        straggler_comm_s=seconds / 3,
        num_samples=100 * k,
        accuracy=accuracy,
        eval_correct=0 if np.isnan(accuracy) else round(1000 * accuracy),
        eval_seen=0 if np.isnan(accuracy) else 1000,
        eval_loss=1.0,
        train_loss=1.0,
        efficiency=0.0,
        update_norm=1.0,
        wall_s=4.0,
        train_wall_s=2.0,
        exchange_wall_s=0.5,
        evaluate_wall_s=0.5,
        idle_fraction=0.25,
        cohort=cohort,
        candidates=Candidates(weighed, ones[:1].repeat(2), ones[:1].repeat(2), np.array([0.1, 0.2]))
        if vote
        else None,
        **spent,
    )


WRITTEN: dict[str, bytes] = {}
"""{arguments of `write_small_run`: the bytes of the file}: tests want many runs, mostly the same."""


def write_small_run(folder, name, *given, **more):
    """Write `name`.h5 into a folder, see `new_small_run`; returns its path."""
    path, key = Path(folder, f"{name}.h5"), repr((name, given, sorted(more.items())))
    if key not in WRITTEN:
        new_small_run(path, *given, **more)
        WRITTEN[key] = path.read_bytes()
    path.write_bytes(WRITTEN[key])
    return str(path)


def new_small_run(
    path,
    policy="powertrip",
    k=(2, 4, 6),
    accuracy=(0.2, 0.3, 0.5),
    hours=1.0,
    seed=0,
    votes=None,
    target=0.45,
    label="",
    policy_keys=None,
    tables=None,
    update_bytes=1.5e9,
    power_fraction=1.0,
    ranks=1,
    synthetic=True,
    spent=None,
):
    """Write a file, called like its run: rounds of `hours` each with cohorts `k` and accuracies."""
    name = path.stem
    miles = np.array([0.0, 100, 500, 1000, 2000, 4000, 8000, 10000])
    bandwidth_bps = 1e9 * np.minimum(1, 1000 / np.maximum(miles, 1))
    distance_m = miles * MILE_M
    values = {
        "site": np.arange(8),
        "distance_m": distance_m,
        "bandwidth_bps": bandwidth_bps,
        "comm_s": distance_m / 2e8 + 8 * update_bytes / bandwidth_bps,
        "num_samples": 100 * np.arange(1, 9),
        "work_s": np.full(8, 60.0),
        "power_fraction": np.linspace(0.2, 1.0, 8),
    }
    rounds = [
        row(i + 1, i * hours, (i + 1) * hours, k_, a, vote, **(SPENT if spent is None else spent))
        for i, (k_, a, vote) in enumerate(zip(k, accuracy, votes or [0] * len(k), strict=True))
    ]
    merged = {
        "name": name,
        "seed": seed,
        "network": {"update_bytes": update_bytes},
        "power": {"kind": "constant", "fraction": power_fraction},
        "policy": {"kind": policy, **(policy_keys or {})},
        "ranks": {"transport": "serial" if ranks == 1 else "mpi"},
        **(tables or {}),
    }
    meta = {
        "scenario": name,
        "label": label,
        "status": "finished",
        "stop_reason": "max_rounds = 3",
        "policy": policy,
        "policy_keys": resolve({"policy": {"kind": "centralized"}}).policy_keys
        if policy == "centralized"
        else [],
        "seed": seed,
        "update_bytes": update_bytes,
        "target_accuracy": target,
        "params_digest": "0123456789abcdef0123456789abcdef",
        "data_source": "glyphs rendered from fonts",
        "synthetic_data": synthetic,
        "synthetic_power": synthetic,
        "num_ranks": ranks,
        "transport": "serial",
        "engine": "loop",
        "input_json": json.dumps(merged),
    }
    write_run(path, meta, {name: Column(v, "1", name) for name, v in values.items()}, History(tuple(rounds)))


@pytest.fixture(scope="module")
def make_run_of_module(tmp_path_factory):
    """`write_small_run` into a folder that the tests of a module share."""
    return partial(write_small_run, tmp_path_factory.mktemp("runs"))


@pytest.fixture
def make_run(tmp_path):
    """`write_small_run` into the folder of this test."""
    return partial(write_small_run, tmp_path)


@pytest.fixture
def drawn(hpctrip, tmp_path):
    """Draw a figure on arguments; returns the printed lines and checks that picture and numbers are left."""

    def run(name, *arguments, out="out.png"):
        out = tmp_path / out
        ended = hpctrip("plot", name, *arguments, "--out", out)
        assert ended.code == 0, ended.err
        *lines, picture, numbers = ended.out.splitlines()
        assert picture == f"picture: {out}"
        assert numbers == f"numbers: {out.with_suffix('.csv')}"
        assert len(pd.read_csv(out.with_suffix(".csv"))) > 0
        if out.suffix == ".png":
            with Image.open(out) as image:
                assert len(image.convert("L").getcolors()) > 10  # more than an empty page
        return [" ".join(line.split()) for line in lines]

    return run
