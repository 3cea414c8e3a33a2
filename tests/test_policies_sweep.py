"""The array scripts of slurm/ as one task of them runs; that needs no Slurm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpctrip.record.reader import open_run

ROOT = Path(__file__).parents[1]
STUDY = """
name = "mine"
inputs = ["inputs/smoke.toml"]
seeds = [4, 5]
common.stop.max_rounds = 1
[[axis]]
name = "policy"
variants = [{label = "static", policy.kind = "static", policy.k = 2}, {label = "random", policy.kind = "random"}]
"""
WORKLOADS = ("emnist", "femnist", "llm", "shakespeare", "speech")
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

    def run(index, *arguments, launcher=ALONE, script="study", **variables):
        job = {
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_JOB_ID": 1,
            "SLURM_JOB_NODELIST": "here",
            "SLURM_NTASKS": 1,
        }
        chosen = {"HPCTRIP_LAUNCHER": launchers[launcher], "HPCTRIP_VENV": "", "VIRTUAL_ENV": "", **variables}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
        env = os.environ | {name: str(value) for name, value in (job | chosen | path).items()}
        command = ["bash", f"slurm/{script}.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)

    return run


def test_a_task_runs_its_policy_and_seed_and_does_nothing_the_second_time(task, tmp_path):
    (tmp_path / "mine.toml").write_text(STUDY)
    first = task(1, "mine.toml", "--out", "try")
    assert first.returncode == 0, first.stderr
    (file,) = (tmp_path / "try/runs").iterdir()
    run = open_run(file)
    assert run.meta["policy"] == "static" and run.meta["seed"] == 5
    before = file.read_bytes()
    second = task(1, "mine.toml", "--out", "try")
    assert second.stdout.splitlines()[-1] == f"try/runs/{file.name} is finished already"
    other = task(1, "mine.toml", "--out", "try", "-o", "train.lr=0.5")
    assert other.returncode == 0, other.stderr  # another input is another run, not one that is finished
    assert len(list((tmp_path / "try/runs").iterdir())) == 2 and file.read_bytes() == before


@pytest.mark.parametrize(
    ("script", "arguments", "command"),
    [
        ("study", ["fig09", "-o", "seed=1,2"], "study fig09 -o seed=1,2 --task 7"),
        ("emnist_static_sweep", ["-o", "policy.k=10,20"], "study fig08 -o policy.k=10,20 --task 7"),
        ("policies", ["speech", "--out", "x"], "study speech_policies --out x --task 7"),
    ],
)
def test_an_array_script_is_one_task_of_a_study(task, script, arguments, command):
    printed = task(7, *arguments, launcher=SAYS, script=script).stdout.splitlines()[-1]
    assert printed.endswith(f"-m hpctrip {command}")


@pytest.mark.parametrize("study", [*(f"{w}_policies" for w in WORKLOADS), "fig08", "fig09"])
def test_every_study_of_a_script_has_its_inputs_and_as_many_runs_as_the_script_has_tasks(
    study, hpctrip, tmp_path
):
    ended = hpctrip("study", study, "--out", tmp_path, "--list")
    assert ended.code == 0, ended.err
    fig14 = {"speech_policies": 70, "shakespeare_policies": 70}
    tasks = {"fig08": 100, "fig09": 70, "emnist_policies": 70, **fig14}.get(study, 40)
    assert len(ended.out.splitlines()) == tasks


@pytest.mark.parametrize(
    ("index", "arguments", "script", "complaint"),
    [
        (8, ["mine.toml"], "study", "--task 8: the study has 4 runs; 0 to 3"),
        (0, ["mnist"], "policies", "mnist_policies: no such study file; did you mean 'emnist_policies'?"),
        (0, [], "policies", "give a workload, such as speech"),
    ],
)
def test_a_task_that_cannot_be_says_why(index, arguments, script, complaint, task, tmp_path):
    (tmp_path / "mine.toml").write_text(STUDY)
    ended = task(index, *arguments, script=script)
    assert ended.returncode and complaint in ended.stderr
