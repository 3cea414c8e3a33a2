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
SAYS = '#!/bin/bash\n[[ $4 == -c ]] && echo 1 || echo "$@"\n'
"""A launcher that says what it was to start, and that there is one rank."""


@pytest.fixture
def task(tmp_path):
    """`task(index, *arguments)`: one array task, in a folder with all that the script uses."""
    for folder in ("slurm", "inputs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    launchers = {ALONE: tmp_path / "alone", SAYS: tmp_path / "says"}
    for text, file in launchers.items():
        file.write_text(text)
        file.chmod(0o755)

    def run(index, *arguments, launcher=ALONE, script="policies", **variables):
        job = {
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_JOB_ID": 1,
            "SLURM_JOB_NODELIST": "here",
            "SLURM_NTASKS": 1,
        }
        given = {"HPCTRIP_SEEDS": "4 5", "HPCTRIP_LAUNCHER": launchers[launcher]}
        given |= {"HPCTRIP_VENV": "", "VIRTUAL_ENV": "", **variables}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
        env = os.environ | {name: str(value) for name, value in (job | given | path).items()}
        command = ["bash", f"slurm/{script}.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)

    return run


def test_a_task_runs_its_policy_and_seed_and_does_nothing_the_second_time(task, tmp_path):
    arguments = ("emnist", *(f"-o{line}" for line in (*TINY, "stop.max_rounds=1")))
    first = task(3, *arguments, HPCTRIP_SWEEP="try")  # dynamic 4, 5, static 4, 5
    assert first.returncode == 0, first.stderr
    file = "results/try/static_seed5.h5"
    run = open_run(tmp_path / file)
    assert run.meta["policy"] == "static" and run.meta["seed"] == 5
    second = task(3, *arguments, HPCTRIP_SWEEP="try")
    assert second.stdout.splitlines()[-1] == f"{file} is finished already"
    before = (tmp_path / file).read_bytes()
    other = task(3, *arguments, "-o", "train.lr=5", HPCTRIP_SWEEP="try")
    assert other.returncode == 2 and f"train.lr: is 5.0, but 0.01 in {file}" in other.stderr
    assert (tmp_path / file).read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ([], "emnist_policies"),
        (["-o", "network.update_bytes=2 GB"], "emnist_policies/network.update_bytes=2_GB"),
        (["inputs/emnist_topk.toml", "-otrain.lr=5"], "emnist_policies/inputs_emnist_topk.toml,train.lr=5"),
        (["-o", f"workload.data={'d' * 300}"], "emnist_policies/workload.data=" + "d" * 185),
    ],
)
def test_a_sweep_that_changes_something_has_files_of_its_own(task, arguments, folder):
    said = task(0, "emnist", *arguments, launcher=SAYS).stdout.splitlines()[-1]
    assert said.endswith(f"--out results/{folder}/dynamic_seed4.h5 --resume")


def test_the_static_sweep_too_has_a_folder_for_every_change(task):
    ended = task(0, "-o", "train.lr=5", launcher=SAYS, script="emnist_static_sweep", HPCTRIP_KS="10 20")
    said = ended.stdout.splitlines()[-1]
    assert said.endswith("--out results/fig08_static_sweep/train.lr=5/static_k10_seed4.h5 --resume")


@pytest.mark.parametrize("workload", ["emnist", "femnist", "llm", "shakespeare", "speech"])
def test_every_policy_that_a_workload_is_compared_under_has_an_input(task, workload):
    for index in range(0, 8, 2):
        ended = task(index, workload, launcher=SAYS)
        assert ended.returncode == 0, ended.stderr


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
