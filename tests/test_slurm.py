"""The scripts of slurm/, submitted to a real Slurm of which this machine is a node, scaled down by sbatch's options."""

import json
import sys
import time
from types import SimpleNamespace

import pandas as pd
import pytest
from slurm_node import HOST, is_a_slurm_node, user_in, users_folder

from hpctrip.record.reader import open_run

SMALL = ["stop.max_rounds=2", "sites.num_sites=4", "workload.train_samples=400", "workload.test_samples=100"]
TINY = [word for setting in SMALL for word in ("-o", setting)]


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(600),  # two submissions, each with its own deadline below, which shows the log
    pytest.mark.skipif(
        not is_a_slurm_node(), reason="no Slurm here with this machine as a node (see .ci/slurm_up)"
    ),
]


@pytest.fixture
def cluster(tmp_path):
    """A user's folder with the repository's scripts and inputs: `submit` a job there, see the `statuses` of results."""
    run = user_in(users_folder(tmp_path), limit_s=120)

    def submit(*arguments, states=frozenset({"COMPLETED"}), **variables):
        """What the job, or all jobs of an array, wrote. `sbatch --wait` would look every half a minute only."""
        job = run("sbatch", "--parsable", f"--nodelist={HOST}", "--gpus=0", *arguments, **variables).strip()
        return wait(job, states)

    def wait(job, states=frozenset({"COMPLETED"})):
        """What a job wrote, once it is over."""
        deadline = time.monotonic() + 480
        while run("squeue", "--noheader", f"--jobs={job}"):
            if time.monotonic() > deadline:
                run("scancel", job)
                pytest.fail(f"job {job} not done in time\n{output(job)}")
            time.sleep(0.3)
        words = run("scontrol", "show", "job", job).split()
        assert {word[9:] for word in words if word.startswith("JobState=")} == states, output(job)
        return output(job)

    def output(job):
        logs = sorted(tmp_path.glob(f"slurm-*-{job}*.out"))
        return "".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def statuses():
        """The statuses of the results files."""
        return [open_run(file).status for file in sorted((tmp_path / "results").rglob("*.h5"))]

    return SimpleNamespace(run=run, submit=submit, wait=wait, statuses=statuses, folder=tmp_path)


def test_the_users_command_scaled_down_leaves_a_finished_results_file(cluster):
    """With srun; the jobs of test_requeue.py are started by mpirun."""
    launcher = "srun --mpi=pmi2"
    log = cluster.submit("--ntasks=3", "slurm/emnist_dynamic.sh", *TINY, HPCTRIP_LAUNCHER=launcher)
    assert f"{launcher} -n 3 python -m hpctrip inputs/emnist_dynamic.toml" in log
    assert cluster.statuses() == ["finished"]


def test_ranks_that_would_each_be_alone_are_refused_before_anything_runs(cluster):
    with pytest.raises(AssertionError, match="no launcher joins 3 ranks"):
        cluster.submit("--ntasks=3", "slurm/emnist_dynamic.sh", *TINY, HPCTRIP_LAUNCHER="srun --mpi=none")
    assert cluster.statuses() == []


SITE = [f"--sbatch=--nodelist={HOST}", "--ranks", "2", "--partition=ci", "--time=00:10:00"]
ENDS_ONCE = """
import os, signal
from pathlib import Path
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.baselines import Static

@POLICIES.add
class EndsOnce(Static):
    kind = "ends-once"

    def select(self, sites, history, rng):
        task = os.environ.get("SLURM_ARRAY_TASK_ID")
        if task and len(history) == 2 and not Path(task).exists():
            Path(task).touch()
            os.kill(os.getpid(), signal.SIGKILL if task == "1" else signal.SIGTERM)
        return super().select(sites, history, rng)
"""


def test_an_array_with_a_task_that_leaves_and_one_that_is_killed_ends_as_undisturbed(cluster):
    (cluster.folder / "ends.py").write_text(ENDS_ONCE)
    lines = ["policy.kind=ends-once", "plugins=['ends.py']", "checkpoint.every_rounds=1", "stop.max_rounds=4"]
    lines += ["watchdog.silent_s=10"]  # srun leaves the other ranks of a killed one alone
    settings = [*TINY, *(word for line in lines for word in ("-o", line))]
    settings += ["-o", "policy.k=2", "-o", "seed=7,8"]

    def study(command, out, *options):
        words = [sys.executable, "-m", "hpctrip", "study", command, "fig08", *settings, "--out", out]
        return cluster.run(*words, *options)

    def submit(states):
        submitted = study("submit", "try", *SITE)
        return submitted, cluster.wait(submitted.split()[1].rstrip(":"), states)

    submitted, log = submit({"COMPLETED", "FAILED"})
    assert "2 runs in 1 job array, 2 ranks" in submitted
    assert log.count("launch.sh: requeued") == 1 and log.count("resuming after round") == 1
    table = study("status", "try")
    assert "finished     k = 2, seed 7" in table and "its process died after round 1" in table

    submitted, log = submit({"COMPLETED"})  # only what is left
    assert "1 run in 1 job" in submitted
    assert log.count("resuming after round 1, from ") == 1 and "is finished already" not in log

    study("tables", "try")
    study("run", "undisturbed", "--jobs", "1")
    ledgers = [pd.read_csv(cluster.folder / out / "fig08/ledger.csv") for out in ("try", "undisturbed")]
    pd.testing.assert_frame_equal(*(ledger.drop(columns=["wall_s", "file_state"]) for ledger in ledgers))
    assert ledgers[0]["rounds"].tolist() == [4, 4] and ledgers[0]["digest"].nunique() == 2


ODD = ["1\u00a0GB", 'a "quoted" one', "東京", "x" * 80, "new\u2028line, k = 2", "it's $HOME; `ls`"]


def test_an_array_makes_the_runs_whatever_their_labels_and_status_follows_it(cluster):
    variants = ", ".join(
        f"{{label = {json.dumps(each)}, train.lr = 0.0{n}}}" for n, each in enumerate(ODD, 1)
    )
    keys = "\n".join(f"common.{line}" for line in [*SMALL, "policy.k = 2", 'policy.kind = "static"'])
    axis = f'[[axis]]\nname = "size"\nvariants = [{variants}]\n'
    text = f'name = "odd"\ninputs = ["inputs/smoke.toml"]\nseeds = [1, 2]\n{keys}\n{axis}'
    (cluster.folder / "odd.toml").write_text(text)

    def study(command, *options):
        return cluster.run(sys.executable, "-m", "hpctrip", "study", command, "odd.toml", *options)

    submitted = study("submit", f"--sbatch=--nodelist={HOST}", "--partition=ci", "--at-once", "4")
    assert "12 runs in 1 job array, 1 rank, 0 GPUs each" in submitted
    assert study("status", "--watch").rstrip().endswith("12 runs: 12 finished")
    cluster.wait(submitted.split()[1].rstrip(":"))
    assert "nothing is left to submit" in study("submit")
    assert study("tables").count("x" * 80) == 1
