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


@pytest.fixture
def task(tmp_path):
    """`task(index, *arguments)`: one array task, in a folder with all that the script uses."""
    for folder in ("slurm", "inputs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    launcher = tmp_path / "alone"
    launcher.write_text(ALONE)
    launcher.chmod(0o755)

    def run(index, *arguments, script="study", **variables):
        job = {
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_JOB_ID": 1,
            "SLURM_JOB_NODELIST": "here",
            "SLURM_NTASKS": 1,
        }
        chosen = {"HPCTRIP_LAUNCHER": launcher, "HPCTRIP_VENV": "", "VIRTUAL_ENV": ""}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
        env = os.environ | {name: str(value) for name, value in (job | chosen | path | variables).items()}
        command = ["bash", f"slurm/{script}.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)

    return run


def test_a_task_runs_its_policy_and_seed_and_does_nothing_the_second_time(
    task, hpctrip, tmp_path, monkeypatch
):
    (tmp_path / "mine.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    assert hpctrip("study", "submit", "mine.toml", "--out", "try", "--write").code == 0
    (runs,) = (tmp_path / "try/submitted").glob("*.jsonl")
    first = task(1, str(runs))
    assert first.returncode == 0, first.stderr
    (file,) = (tmp_path / "try/runs").iterdir()
    run = open_run(file)
    assert run.meta["policy"] == "static" and run.meta["seed"] == 5
    before = file.read_bytes()
    second = task(1, str(runs))
    assert second.stdout.splitlines()[-1].endswith(f"try/runs/{file.name} is finished already")
    assert file.read_bytes() == before
    gone = task(8, str(runs))
    assert gone.returncode and f"run 8: {runs} has 4 runs; 0 to 3" in gone.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "command"),
    [
        ("emnist_static_sweep", ["-o", "policy.k=10,20"], "fig08 --ranks 5 --gpus 4 -o policy.k=10,20"),
        ("policies", ["speech", "--out", "x"], "speech_policies --ranks 5 --gpus 4 --out x"),
    ],
)
def test_an_array_script_submits_its_study(task, tmp_path, script, arguments, command):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text('#!/bin/bash\necho "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    ended = task(7, *arguments, script=script, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert ended.stdout == f"-m hpctrip study submit {command}\n", ended.stderr


def test_a_script_without_its_workload_says_so(task):
    assert "give a workload, such as speech" in task(0, script="policies").stderr


@pytest.mark.parametrize("study", [*(f"{w}_policies" for w in WORKLOADS), "fig08", "fig09"])
def test_every_study_of_a_script_has_its_inputs_and_as_many_runs_as_the_script_has_tasks(
    study, hpctrip, tmp_path
):
    ended = hpctrip("study", "status", study, "--out", tmp_path)
    assert ended.code == 0, ended.err
    fig14 = {"speech_policies": 70, "shakespeare_policies": 70}
    tasks = {"fig08": 100, "fig09": 70, "emnist_policies": 70, **fig14}.get(study, 40)
    assert len(ended.out.splitlines()) == tasks + 1
