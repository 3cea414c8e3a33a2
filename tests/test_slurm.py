"""The scripts of slurm/, submitted to a real Slurm of which this machine is a node, scaled down by sbatch's options."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from slurm_node import HOST, is_a_slurm_node

REPO = Path(__file__).parents[1]
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
    """A user's folder with the repository's scripts and inputs: `submit` a job there, look at its `results`."""
    for folder in ("slurm", "inputs"):
        (tmp_path / folder).symlink_to(REPO / folder)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "HPCTRIP_VENV")
    }
    environment["PATH"] = (
        f"{Path(sys.executable).parent}:{environment['PATH']}"  # the python and mpirun under test
    )
    environment["PYTHONPATH"] = str(REPO)

    def run(*command, **variables):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | variables, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def submit(*arguments, **variables):
        """What the job, or all jobs of an array, wrote. `sbatch --wait` would look every half a minute only."""
        job = run("sbatch", "--parsable", f"--nodelist={HOST}", "--gpus=0", *arguments, **variables).strip()
        deadline = time.monotonic() + 240
        while run("squeue", "--noheader", f"--jobs={job}"):
            if time.monotonic() > deadline:
                run("scancel", job)
                pytest.fail(f"job {job} not done in time\n{output(job)}")
            time.sleep(0.3)
        states = {
            word for word in run("scontrol", "show", "job", job).split() if word.startswith("JobState=")
        }
        assert states == {"JobState=COMPLETED"}, output(job)
        return output(job)

    def output(job):
        logs = sorted(tmp_path.glob(f"slurm-*-{job}*.out"))
        return "".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def results():
        """{file below results/: its status}, as `show` tells it."""
        folder = tmp_path / "results"
        files = sorted(folder.rglob("*.h5"))
        answer = run(sys.executable, "-m", "hpctrip", "show", "--status", *map(str, files)) if files else ""
        return dict(zip([str(file.relative_to(folder)) for file in files], answer.split(), strict=True))

    return SimpleNamespace(submit=submit, results=results)


@pytest.mark.parametrize("launcher", ["srun --mpi=pmi2", "mpirun"])
def test_the_users_command_scaled_down_leaves_a_finished_results_file(cluster, launcher):
    log = cluster.submit("--ntasks=3", "slurm/emnist_dynamic.sh", *TINY, HPCTRIP_LAUNCHER=launcher)
    assert f"{launcher} -n 3 python -m hpctrip inputs/emnist_dynamic.toml" in log
    assert list(cluster.results().values()) == ["finished"]


def test_ranks_that_would_each_be_alone_are_refused_before_anything_runs(cluster):
    with pytest.raises(AssertionError, match="no launcher joins 3 ranks"):
        cluster.submit("--ntasks=3", "slurm/emnist_dynamic.sh", *TINY, HPCTRIP_LAUNCHER="srun --mpi=none")
    assert cluster.results() == {}


def test_a_sweep_finds_a_launcher_leaves_a_file_per_k_and_seed_and_skips_them_the_second_time(cluster):
    sweep = ["--ntasks=2", "--array=0-1", "slurm/emnist_static_sweep.sh", *TINY]
    lists = {"HPCTRIP_KS": "2", "HPCTRIP_SEEDS": "7 8", "HPCTRIP_SWEEP": "try", "HPCTRIP_LAUNCHER": ""}
    cluster.submit(*sweep, **lists)
    assert cluster.results() == {"try/static_k2_seed7.h5": "finished", "try/static_k2_seed8.h5": "finished"}
    log = cluster.submit(*sweep, **lists)
    assert log.count("is finished already") == 2 and "python -m hpctrip" not in log
