"""A small run that could have happened: every number follows from the others, as `verify` demands."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hpctrip.record.reader import open_run
from hpctrip.record.writer import write_run
from hpctrip.sim.rounds import Candidates, CohortRound, History, RoundRow

META = {
    "status": "finished",
    "stop_reason": "target accuracy reached",
    "scenario": "made up for tests",
    "seed": 7,
    "target_accuracy": 0.2,
    "update_bytes": 1.5e9,
    "payload_bytes": 4e6,
    "num_ranks": 3,
    "transport": "mpi",
    "engine": "loop",
    "hosts": ["node1", "node1", "node2"],
    "devices": ["cpu", "cpu", "cpu"],
    "synthetic_data": True,
    "input_toml": '[policy]\nkind = "powertrip"\n',
    "input_json": '{"policy": {"kind": "powertrip"}, "timing": {"clock": "straggler"}}',
}


def _sites(num_sites: int) -> dict[str, tuple[np.ndarray, str, str]]:
    return {
        "site": (np.arange(num_sites), "1", "site index"),
        "distance_m": (np.linspace(1e5, 1e7, num_sites), "m", "distance to the aggregator"),
        "domain": (np.array([f"cella_pdu{i}" for i in range(num_sites)]), "1", "power domain followed"),
    }


def _history(num_rounds: int, num_sites: int) -> History:
    """Cohorts of 2, 3, ... sites. Site i computes for 10 (i + 1) s and communicates for 1 s; accuracy rises by 10 %."""
    rows, clock_s = [], 0.0
    for number in range(1, num_rounds + 1):
        k = min(number + 1, num_sites)
        site = np.arange(k)[::-1].copy()
        cohort = CohortRound(
            site=site,
            num_samples=100 + site,
            power_fraction=np.full(k, 0.5),
            throughput_fraction=np.full(k, 0.5),
            seen_power_fraction=np.full(k, 0.5),
            compute_s=10.0 * (site + 1),
            comm_s=np.ones(k),
            train_loss=np.full(k, 2.0),
            train_wall_s=np.full(k, 0.01),
            status=np.zeros(k, dtype=np.int64),
            loss_before=np.full(k, 2.5),
            loss_after=np.full(k, 1.5),
            update_norm=np.full(k, 3.0),
        )
        gain, round_s = np.array([0.1, 0.2, 0.2]), np.array([5.0, 5.0, 5.0])
        makespan_s = 10.0 * k + 1.0
        row = RoundRow(
            round=number,
            clock_start_s=clock_s,
            clock_s=clock_s + makespan_s,
            makespan_s=makespan_s,
            num_sites=k,
            num_arrived=k,
            voted_num_sites=2,
            straggler=k - 1,
            straggler_compute_s=10.0 * k,
            straggler_comm_s=1.0,
            num_samples=int(cohort.num_samples.sum()),
            accuracy=number / 10,
            eval_correct=10 * number,
            eval_seen=100,
            eval_loss=1.0,
            eval_perplexity=np.e,
            train_loss=2.0,
            efficiency=0.1 / makespan_s,
            update_norm=1.0,
            wall_s=0.5,
            train_wall_s=0.3,
            exchange_wall_s=0.1,
            evaluate_wall_s=0.1,
            idle_fraction=0.25,
            cohort=cohort,
            candidates=Candidates(
                k=np.array([1, 2, 3]), gain=gain, round_s=round_s, efficiency=gain / round_s
            ),
        )
        rows.append(row)
        clock_s = row.clock_s
    return History(tuple(rows))


@pytest.fixture(scope="session")
def meta():
    return META


@pytest.fixture(scope="session")
def fake_sites():
    return _sites


@pytest.fixture(scope="session")
def fake_history():
    return _history


@pytest.fixture(scope="session")
def read_back():
    """`read_back(csv, frame)`: the table of a CSV file with the types of `frame`, its numbers as Python reads them: to
    the last digit, which pandas does of itself only in its newer versions."""

    def read(csv, frame):
        exact = frame.select_dtypes("float").columns
        return pd.read_csv(csv, converters={name: lambda text: float(text or "nan") for name in exact})

    return read


@pytest.fixture
def written(tmp_path):
    """`written(history, **meta)`: a results file over five sites, read again; of three rounds unless others are
    named."""

    def write(history=None, **meta):
        path = tmp_path / "run.h5"
        write_run(path, META | meta, _sites(5), _history(3, 5) if history is None else history)
        return open_run(path)

    return write


@pytest.fixture
def run_file(written):
    """The path of that file."""
    return written().path
