"""slurm/requeue.sh on a real Slurm: jobs that leave with a checkpoint, come back, and end with the undisturbed bits."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from slurm_node import HOST, is_a_slurm_node

from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

REPO = Path(__file__).parents[1]
TINY = [
    "sites.num_sites=6",
    "workload.train_samples=120",
    "workload.test_samples=100",
    "stop.target_accuracy=1.0",
    "checkpoint.every_rounds=1",
    "plugins=['slow.py']",
    "policy.kind=slow",
]
ROUNDS = 160
SLOW_POLICY = """
import os, time
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.powertrip import PowerTrip

@POLICIES.add
class Slow(PowerTrip):
    kind = "slow"

    def select(self, sites, history, rng):
        time.sleep(float(os.environ.get("ROUND_S", "0")))
        return super().select(sites, history, rng)
"""


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1800),  # Slurm itself holds a requeued job back for two minutes
    pytest.mark.skipif(not is_a_slurm_node(), reason="no Slurm here with this machine as a node"),
]


@pytest.fixture
def cluster(tmp_path):
    for folder in ("slurm", "inputs"):
        (tmp_path / folder).symlink_to(REPO / folder)
    (tmp_path / "slow.py").write_text(SLOW_POLICY)
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] = str(REPO)
    jobs = []

    def run(*command, **variables):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | variables, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def submit(*options, rounds=ROUNDS, **variables):
        small = ["--parsable", f"--nodelist={HOST}", "--gpus=0", "--ntasks=2"]
        lines = [word for line in [*TINY, f"stop.max_rounds={rounds}"] for word in ("-o", line)]
        script = ["slurm/requeue.sh", "inputs/smoke.toml", *lines]
        jobs.append(run("sbatch", *small, *options, *script, HPCTRIP_LAUNCHER="mpirun", **variables).strip())
        return jobs[-1]

    def log(job):
        path = tmp_path / f"slurm-hpctrip-{job}.out"
        return path.read_text() if path.exists() else ""

    def until(job, what, limit_s=900):
        """Wait until `what(log, state)` holds."""
        deadline = time.monotonic() + limit_s
        while True:
            words = run("scontrol", "show", "job", job).split()
            state = next(word for word in words if word.startswith("JobState=")).removeprefix("JobState=")
            if what(log(job), state):
                return log(job)
            assert not over(log(job), state) and time.monotonic() < deadline, f"{state}\n{log(job)}"
            time.sleep(0.5)

    def result(job):
        found = open_run(tmp_path / f"results/hpctrip_{job}.h5")
        assert verify(found) == []
        return found

    yield SimpleNamespace(run=run, submit=submit, until=until, result=result, folder=tmp_path)
    for job in jobs:
        subprocess.run(["scancel", job], capture_output=True)


def undisturbed(cluster, rounds=ROUNDS):
    out = cluster.folder / "undisturbed.h5"
    lines = [word for line in [*TINY, f"stop.max_rounds={rounds}"] for word in ("-o", line)]
    cluster.run(sys.executable, "-m", "hpctrip", "run", "inputs/smoke.toml", "--out", str(out), *lines)
    return open_run(out)


def over(log, state):
    return state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


def test_a_time_limit_in_mid_run_is_a_checkpoint_a_requeue_and_the_same_digest(cluster):
    # the signal comes after one minute; 160 rounds of half a second or more take longer, however fast the machine
    job = cluster.submit("--time=3", "--signal=B:USR2@120", ROUND_S="0.5")
    log = cluster.until(job, over, limit_s=1500)
    assert "requeue.sh: requeued, 99 more to come at most" in log and "going on after round" in log
    expected, found = undisturbed(cluster), cluster.result(job)
    assert found.meta["status"] == "finished" and len(found.meta["starts"]) > 1
    assert found.meta["params_digest"] == expected.meta["params_digest"]
    assert found.rounds["clock_s"].tolist() == expected.rounds["clock_s"].tolist()


def test_usr2_from_scancel_requeues_until_the_countdown_is_over(cluster):
    job = cluster.submit("--time=60", rounds=100_000, HPCTRIP_MAX_REQUEUES="0")
    cluster.until(job, lambda log, state: "round    2" in log)
    cluster.run("scancel", "--batch", "--signal=USR2", job)
    log = cluster.until(job, over)
    assert "interrupted after round" in log and "given up after 0 requeues" in log
    assert cluster.result(job).meta["status"] == "interrupted"


def test_a_stop_file_is_a_checkpoint_and_no_requeue(cluster):
    job = cluster.submit("--time=60", rounds=100_000)
    cluster.until(job, lambda log, state: "round    2" in log)
    (cluster.folder / f"results/hpctrip_{job}.h5.stop").touch()
    log = cluster.until(job, over)
    assert "requeue.sh: stopped by" in log and "requeued" not in log
    assert cluster.result(job).meta["status"] == "interrupted"


def test_scancel_ends_the_job_for_good_and_a_resume_by_hand_goes_on(cluster):
    job = cluster.submit("--time=60", rounds=100_000)
    cluster.until(job, lambda log, state: "round    3" in log)
    cluster.run("scancel", job)
    cluster.until(job, lambda log, state: state == "CANCELLED")
    time.sleep(8)  # the batch script has KillWait to do something foolish
    assert cluster.run("squeue", "--noheader", f"--jobs={job}") == ""
    out = cluster.folder / f"results/hpctrip_{job}.h5"
    before = len(open_run(out).rounds)
    cluster.run(sys.executable, "-m", "hpctrip", "resume", str(out), "-o", f"stop.max_rounds={before + 3}")
    assert cluster.result(job).meta["status"] == "finished"
