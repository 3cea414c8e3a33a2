"""slurm/requeue.sh on a real Slurm: jobs that leave with a checkpoint, come back, and end with the undisturbed bits.

Jobs spend their time waiting (for Slurm, and in rounds slowed down by a policy of ours), so they run side by side.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from slurm_node import HOST, is_a_slurm_node, user_in, users_folder

from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

ROUNDS = 75
"""A second each, while a job is slow: longer than it takes until a time limit is told."""
ENDLESS = 100_000
LINES = [
    "sites.num_sites=6",
    "workload.train_samples=120",
    "workload.test_samples=100",
    "stop.target_accuracy=1.0",
    "checkpoint.every_rounds=1",
    "plugins=['slow.py']",
    "policy.kind=slow",
]
SLOW_POLICY = """
import os, time
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.powertrip import PowerTrip

@POLICIES.add
class Slow(PowerTrip):
    kind = "slow"

    def select(self, sites, history, rng):
        job = os.environ.get("SLURM_JOB_ID")
        if job and not os.path.exists(f"hurry{job}"):
            time.sleep(1)
        return super().select(sites, history, rng)
"""


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_a_slurm_node(), reason="no Slurm here with this machine as a node"),
]


def with_slow_policy(folder):
    (folder / "slow.py").write_text(SLOW_POLICY)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = with_slow_policy(users_folder(tmp_path_factory.mktemp("requeue")))
    run = user_in(folder, limit_s=600)
    jobs = []

    def submit(*options, rounds=ROUNDS, **variables):
        """A job; not alone on the node, although the script asks for that."""
        small = ["--parsable", f"--nodelist={HOST}", "--gpus=0", "--ntasks=2", "--exclusive=user"]
        lines = [word for line in [*LINES, f"stop.max_rounds={rounds}"] for word in ("-o", line)]
        script = ["slurm/requeue.sh", "inputs/smoke.toml", *lines]
        variables = {"HPCTRIP_LAUNCHER": "mpirun"} | variables
        jobs.append(run("sbatch", *small, *options, *script, **variables).strip())
        return jobs[-1]

    def hurry(job):
        """From now on its rounds are not slowed down."""
        (folder / f"hurry{job}").touch()

    def log(job):
        path = folder / f"slurm-hpctrip-{job}.out"
        return path.read_text() if path.exists() else ""

    def facts(job):
        words = run("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def until(job, what, limit_s=600):
        """Wait until `what(log, state)` holds."""
        deadline = time.monotonic() + limit_s
        while True:
            state = facts(job)["JobState"]
            if what(log(job), state):
                return log(job)
            assert not over(log(job), state) and time.monotonic() < deadline, f"{state}\n{log(job)}"
            time.sleep(0.3)

    def result(job):
        found = open_run(folder / f"results/hpctrip_{job}.h5")
        assert verify(found) == []
        return found

    yield SimpleNamespace(
        run=run, submit=submit, hurry=hurry, facts=facts, until=until, result=result, folder=folder
    )
    for job in jobs:
        subprocess.run(["scancel", job], capture_output=True)


@pytest.fixture(scope="module", autouse=True)
def limited(cluster):
    """A job whose time limit comes in mid-run, while the other tests are busy."""
    return cluster.submit(
        "--ntasks=1", "--time=2", "--signal=B:USR2@60"
    )  # after 30 to 60 s: Slurm looks every 30 s


@pytest.fixture(scope="module")
def undisturbed(cluster):
    out = cluster.folder / "undisturbed.h5"
    lines = [word for line in [*LINES, f"stop.max_rounds={ROUNDS}"] for word in ("-o", line)]
    cluster.run(sys.executable, "-m", "hpctrip", "run", "inputs/smoke.toml", "--out", str(out), *lines)
    return open_run(out)


def over(log, state):
    return state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


def assert_went_on_to_the_undisturbed_bits(cluster, job, undisturbed):
    cluster.until(job, lambda log, state: "resuming after round" in log)
    cluster.hurry(job)
    cluster.until(job, over)
    found = cluster.result(job)
    assert found.meta["status"] == "finished" and len(found.meta["starts"]) > 1
    assert int(cluster.facts(job)["Restarts"]) >= 1
    assert found.meta["params_digest"] == undisturbed.meta["params_digest"]
    assert found.rounds["clock_s"].tolist() == undisturbed.rounds["clock_s"].tolist()


def test_usr2_from_scancel_a_stop_file_and_scancel_each_end_a_job_in_their_way(cluster):
    told, stopped = (
        cluster.submit(f"--ntasks={ranks}", "--time=60", rounds=ENDLESS, HPCTRIP_MAX_REQUEUES="0")
        for ranks in (2, 1)
    )
    cancelled = cluster.submit("--time=60", rounds=ENDLESS)
    for job in (told, stopped, cancelled):
        cluster.until(job, lambda log, state: "round    2" in log)
    cluster.run("scancel", "--batch", "--signal=USR2", told)
    (cluster.folder / f"results/hpctrip_{stopped}.h5.stop").touch()
    cluster.run("scancel", cancelled)

    log = cluster.until(told, over)
    assert "interrupted after round" in log and "given up after 0 requeues" in log
    assert cluster.result(told).meta["status"] == "interrupted"

    log = cluster.until(stopped, over)
    assert "requeue.sh: stopped by" in log and "requeued" not in log
    assert cluster.result(stopped).meta["status"] == "interrupted"

    cluster.until(cancelled, lambda log, state: state == "CANCELLED")
    while (state := cluster.run("squeue", "--noheader", "--format=%t", f"--jobs={cancelled}")) == "CG\n":
        time.sleep(0.3)  # the batch script has KillWait to end
    assert state == ""
    out = cluster.folder / f"results/hpctrip_{cancelled}.h5"
    before, plugin = len(open_run(out).rounds), ("--plugin", "slow.py")
    cluster.run(
        sys.executable, "-m", "hpctrip", "resume", str(out), *plugin, "-o", f"stop.max_rounds={before + 3}"
    )
    assert cluster.result(cancelled).meta["status"] == "finished"


def test_preempted_jobs_leave_within_the_grace_time_if_any_and_come_back_to_the_same_digest(
    cluster, undisturbed
):
    if not {"spare", "scraps", "urgent"} <= set(cluster.run("sinfo", "--noheader", "--format=%R").split()):
        pytest.skip("this Slurm has no partitions of .ci/slurm_up, of which one preempts others")
    small = ["--cpus-per-task=9", "--time=60"]  # three jobs of 18 of the node's 64 CPUs
    warned = [
        cluster.submit("--partition=spare", *small, HPCTRIP_LAUNCHER=launcher)
        for launcher in ("mpirun", "srun --mpi=pmi2")
    ]
    jobs = [*warned, cluster.submit("--partition=scraps", *small)]
    for job in jobs:
        cluster.until(job, lambda log, state: "round    2" in log)
    urgent = ["--partition=urgent", "--ntasks=60", "--output=urgent.out", "--wrap=echo urgent; sleep 1"]
    cluster.run("sbatch", *urgent)
    logs = [cluster.until(job, lambda log, state: state == "PENDING") for job in jobs]
    for log in logs[:2]:
        assert "SIGTERM received by rank" in log and log.count("hpctrip: interrupted after round") == 1
        assert "launch.sh: requeued" in log
    assert "launch.sh: requeued" not in logs[2]  # Slurm did
    for job in jobs:
        assert_went_on_to_the_undisturbed_bits(cluster, job, undisturbed)
    assert (cluster.folder / "urgent.out").read_text() == "urgent\n"


def test_a_time_limit_in_mid_run_is_a_checkpoint_a_requeue_and_the_same_digest(cluster, limited, undisturbed):
    assert_went_on_to_the_undisturbed_bits(cluster, limited, undisturbed)
    assert "launch.sh: requeued, 99 more to come at most" in cluster.until(limited, over)


def test_a_job_that_nobody_warns_leaves_before_its_end_by_itself(cluster):
    """As squeue tells where Slurm does not set SLURM_JOB_END_TIME."""
    job = cluster.submit("--ntasks=1", "--time=1", "--signal=B:USR2@0", HPCTRIP_MAX_REQUEUES="0")
    log = cluster.until(job, over)
    assert "the job ends in" in log and "given up after 0 requeues" in log, log
    assert cluster.result(job).meta["status"] == "interrupted"


LATE_LAUNCHER = """
if [[ $* == *hpctrip* && ! -e started ]]; then
    touch started
    until [[ -e told ]]; do sleep 0.1; done
fi
exec mpirun "$@"
"""


def test_a_signal_before_any_rank_has_started_puts_the_job_back(cluster, tmp_path):
    folder = with_slow_policy(users_folder(tmp_path))
    (folder / "late.sh").write_text(LATE_LAUNCHER)
    output = cluster.folder / "slurm-hpctrip-%j.out"
    options = ["--ntasks=1", "--time=60", f"--chdir={folder}", f"--output={output}", "--job-name=mine/run"]
    job = cluster.submit(*options, rounds=2, HPCTRIP_LAUNCHER="bash late.sh")
    cluster.until(job, lambda log, state: (folder / "started").exists())
    cluster.run("scancel", "--batch", "--signal=USR2", job)
    out = folder / f"results/mine/run_{job}.h5"
    cluster.until(job, lambda log, state: Path(f"{out}.stop").exists())
    (folder / "told").touch()
    assert "launch.sh: requeued" in cluster.until(job, over)
    assert open_run(out).meta["status"] == "finished"


def test_after_the_loss_of_its_node_a_job_goes_on_from_its_last_checkpoint(cluster, undisturbed):
    job = cluster.submit("--ntasks=1", "--time=60")
    cluster.until(job, lambda log, state: "round    2" in log)
    processes = [line.split()[0] for line in cluster.run("scontrol", "listpids", job).splitlines()[1:]]
    cluster.run("scontrol", "update", f"nodename={HOST}", "state=down", "reason=lost")
    for number in processes:  # nobody on a node that is lost says goodbye
        with suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    log = cluster.until(job, lambda log, state: state == "PENDING")
    # Slurm put it back, not the script, which is gone; whether Slurm's own note on that is in the log by now is luck
    assert "interrupted after round" not in log and "requeue.sh" not in log
    subprocess.run(["scontrol", "update", f"nodename={HOST}", "state=resume"])  # if it is not back already
    assert_went_on_to_the_undisturbed_bits(cluster, job, undisturbed)
