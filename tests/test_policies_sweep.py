"""slurm/policies.sh as one task of its array runs it; that needs no Slurm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpctrip.record.reader import open_run

ROOT = Path(__file__).parents[1]
TINY = ("sites.num_sites=6", "policy.k=2", "workload.train_samples=60", "workload.test_samples=20")
ALONE = '#!/bin/bash\nshift 2\nexec "$@"\n'
"""A launcher of one rank: drops `-n 1`."""


@pytest.fixture
def task(tmp_path):
    """`task(index, *arguments)`: one array task, in a folder with all that the script uses."""
    for folder in ("slurm", "inputs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    launcher = tmp_path / "alone"
    launcher.write_text(ALONE)
    launcher.chmod(0o755)

    def run(index, *arguments):
        job = {
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_JOB_ID": 1,
            "SLURM_JOB_NODELIST": "here",
            "SLURM_NTASKS": 1,
        }
        given = {"HPCTRIP_SEEDS": "4 5", "HPCTRIP_LAUNCHER": launcher, "HPCTRIP_VENV": "", "VIRTUAL_ENV": ""}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
        env = os.environ | {name: str(value) for name, value in (job | given | path).items()}
        command = ["bash", "slurm/policies.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)

    return run


def test_a_task_runs_its_policy_and_seed_and_does_nothing_the_second_time(task, tmp_path):
    arguments = ("emnist", *(f"-o{line}" for line in (*TINY, "stop.max_rounds=1")))
    first = task(3, *arguments)  # dynamic 4, 5, static 4, 5
    assert first.returncode == 0, first.stderr
    file = "results/emnist_policies/static_seed5.h5"
    run = open_run(tmp_path / file)
    assert run.meta["policy"] == "static" and run.meta["seed"] == 5
    assert task(3, *arguments).stdout == f"{file} is finished already\n"


@pytest.mark.parametrize(
    ("index", "arguments", "complaint"),
    [
        (8, ["emnist"], "array index 8: 4 policies x 2 seeds need --array=0-7"),
        (
            0,
            ["mnist"],
            "policies.sh: there is no inputs/mnist_dynamic.toml; give a workload of: emnist_dynamic.toml",
        ),
        (0, [], "there is no inputs/_dynamic.toml"),
    ],
)
def test_a_task_that_cannot_be_says_why(index, arguments, complaint, task):
    ended = task(index, *arguments)
    assert ended.returncode == 2 and complaint in ended.stderr
