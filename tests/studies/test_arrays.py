"""Studies as Slurm arrays: what is submitted, and which run a task executes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import BASE, STUDY, ledger_of

SBATCH = '#!/bin/sh\necho "$@" >> {folder}/submitted\nwc -l < {folder}/submitted | tr -d " "\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the small study and a Slurm that accepts arrays of three tasks."""
    (tmp_path / "base.toml").write_text(BASE.replace("max_rounds = 6", "max_rounds = 1"))
    (tmp_path / "study.toml").write_text(STUDY)
    for name, text in (("sbatch", SBATCH), ("scontrol", "#!/bin/sh\necho 'MaxArraySize            = 3'\n")):
        (tmp_path / name).write_text(text.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_study_is_submitted_in_arrays_that_slurm_accepts_one_after_the_other(folder, study):
    ended = study(folder, "--slurm", "--at-once", "2")
    assert ended.code == 0 and "job 1, 2: 4 runs as tasks of 2 arrays" in ended.out, ended.err
    first, second = ((folder / "submitted").read_text()).splitlines()
    assert "--array=0-2%2 " in first and "--dependency" not in first
    assert "--array=0-0%2 --dependency=afterany:1 " in second
    tasks = [word for line in (first, second) for word in line.split() if "tasks-" in word]
    runs = [line.split(" ", 1) for file in tasks for line in Path(file).read_text().splitlines()]
    ledger = ledger_of(folder)
    assert [name for _, name in runs] == list(ledger.index)
    assert [identity for identity, _ in runs] == ledger["identity"].tolist()
    assert "study --task" not in first and "study.toml --out" in first and " --tasks " in first


def test_a_task_executes_the_run_that_was_submitted_though_the_study_has_changed(folder, study):
    study(folder, "--slurm", "--only", "k = 3")
    (file,) = (folder / "out/two").glob("tasks-*.txt")
    (folder / "study.toml").write_text(STUDY.replace("[2, 3]", "[5, 3, 2]"))
    task = study(folder, "--task", "1", "--tasks", file)
    assert task.code == 0 and "run 1 of 2: policy.k = 3, seed 5" in task.out, task.err
    statuses = ledger_of(folder)["status"]
    assert statuses.tolist() == ["planned"] * 3 + ["finished"] and statuses.index[3] == "policy.k = 3, seed 5"
    (folder / "study.toml").write_text(STUDY.replace("[2, 3]", "[2]"))
    gone = study(folder, "--task", "1", "--tasks", file)
    gone.check_refused(
        ["--task 1: policy.k = 3, seed 5: is no longer a run of this study", "submit the study again"]
    )
    study(folder, "--task", "2", "--tasks", file).check_refused([f"--task 2: {file} has 2 runs; 0 to 1"])
