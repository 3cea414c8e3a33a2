"""Three machines with a network between them: the same bits, and an end where one is cut off."""

import importlib.util
import re
import sys
import time
from pathlib import Path

import pytest
from datagrams import STRANGE, attack, udp_addresses
from machines import connected

from hpctrip.record.checkpoint import newest
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

ROOT = Path(__file__).parents[2]
SCENARIO = """
sites.num_sites = 6
workload.train_samples = 120
workload.test_samples = 100
stop.target_accuracy = 1
checkpoint.every_rounds = 1
watchdog.silent_s = 3
"""

IS_WATCHED = importlib.util.find_spec("prometheus_client") is not None
"""Whether the jobs write a file for Prometheus (the extra [metrics])."""

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


@pytest.fixture
def machines(tmp_path, launch, monkeypatch):
    if launch.mpirun is None:
        pytest.skip("no mpirun on this machine")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("HPCTRIP_INTERFACE", raising=False)
    with connected(tmp_path, launch.mpirun) as built:
        yield built


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenario") / "small.toml"
    path.write_text(SCENARIO + "callbacks.prometheus = {}\n" * IS_WATCHED)
    return path


@pytest.fixture
def start(machines, tmp_path, scenario):
    """`start(ranks, rounds, *words)`: hpctrip on these machines, with results in run.h5."""
    jobs = []

    def begin(ranks, rounds, *words):
        command = [sys.executable, "-m", "hpctrip", *(words or ("run", scenario)), "-o"]
        command += [f"stop.max_rounds={rounds}", "--out", tmp_path / "run.h5"]
        jobs.append(machines.start(tmp_path / f"log{len(jobs)}", ranks, *command))
        return jobs[-1]

    return begin


def machines_of_ranks(folder):
    """{rank: its machine} in the file for Prometheus."""
    text = (folder / "run.h5.prom").read_text()
    pairs = re.findall(r'host="(\w+)",phase="train",rank="(\d)"', text)
    return {rank: machine for machine, rank in pairs}


def test_machines_compute_the_bits_of_one_and_go_on_without_one_that_is_cut_off(
    machines, start, scenario, hpctrip, tmp_path
):
    job, out = start({"m1": 2, "m2": 1, "m3": 1}, 100_000), tmp_path / "run.h5"
    job.after("round    2")
    ranks = {
        rank: pid for name in machines.machines for pid, rank in machines[name].processes().items() if rank
    }
    sockets = [address for rank in sorted(ranks) for address in udp_addresses(ranks[rank])]
    assert [host for host, _ in sockets] == ["10.77.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.3"]
    for _ in range(8):
        attack(STRANGE, sockets, within=machines["m2"].inside)
        time.sleep(0.5)
    assert job.process.poll() is None and "watchdog" not in job.log, "every machine is heard, and no stranger"
    if IS_WATCHED:
        assert machines_of_ranks(tmp_path) == {"0": "m1", "1": "m1", "2": "m2", "3": "m3"}
    machines.cut("m3")  # nobody is told
    assert job.code() != 0
    assert "stuck: rank 3 on m3: last heard" in job.log, job.log
    machines.wait_until_idle()  # also m3, which finds rank 0 silent
    run = open_run(out)
    assert verify(run) == [] and "4 rank(s) on m1, m2, m3" in run.meta["starts"][0]
    rounds = newest(out)[0].state.round + 3
    again = start({"m2": 1, "m1": 2}, rounds, "resume", out, *["-o", "callbacks.prometheus={}"] * IS_WATCHED)
    assert again.code() == 0, again.log
    assert not IS_WATCHED or machines_of_ranks(tmp_path) == {"0": "m2", "1": "m1", "2": "m1"}
    alone = tmp_path / "alone.h5"
    assert hpctrip("run", scenario, "-o", f"stop.max_rounds={rounds}", "--out", alone).code == 0
    assert open_run(out).meta["params_digest"] == open_run(alone).meta["params_digest"]
