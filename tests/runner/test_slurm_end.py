"""What runs and scripts make of a Slurm that tells less, or of a node that was lost."""

import os
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hpctrip.runner.signals import Interrupt, Interruption, Signals

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("answer", "left_s"),
    [("+", 170), ("-", None), ("N/A", None), ("", None)],
    ids=["later", "past", "none", "gone"],
)
def test_where_slurm_does_not_set_the_end_of_the_job_squeue_is_asked_once(
    tmp_path, monkeypatch, answer, left_s
):
    end = datetime.now() + timedelta(seconds=170 if answer == "+" else -5)
    text = f"{end:%Y-%m-%dT%H:%M:%S}" if answer in ("+", "-") else answer
    (tmp_path / "squeue").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho {text}\n')
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", f"7{answer}")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    for _ in range(2):
        ends_at = Interruption(Interrupt(), "a.h5", ["here"], Signals())._ends_at
        assert (ends_at - time.time() == pytest.approx(left_s, abs=5)) if left_s else ends_at == float("inf")
    assert (tmp_path / "asked").read_text() == f"--noheader --format=%e --jobs=7{answer}\n"


@pytest.fixture
def requeue(tmp_path):
    """`requeue(launcher) -> its end`: slurm/requeue.sh as job 7, without a Slurm; its one rank has at most two rounds
    to make, and is started by this line of bash."""
    for name in ("slurm", "inputs"):
        (tmp_path / name).symlink_to(ROOT / name)
    says = {"squeue": "echo RUNNING", "scontrol": 'echo "$@"'}
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "run", "SLURM_JOB_NODELIST": "here", "SLURM_NTASKS": "1"}
    path = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }
    small = [
        "stop.max_rounds=2",
        "sites.num_sites=4",
        "workload.train_samples=100",
        "workload.test_samples=100",
    ]

    def run(launcher='exec "$@"'):
        for name, line in {**says, "launcher": f"shift 2; {launcher}"}.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
            (tmp_path / name).chmod(0o755)
        lines = [word for line in small for word in ("-o", line)]
        return subprocess.run(
            ["bash", "slurm/requeue.sh", "inputs/smoke.toml", *lines],
            cwd=tmp_path,
            env={**job, **path, "HPCTRIP_LAUNCHER": "launcher", "VIRTUAL_ENV": ""},
            capture_output=True,
            text=True,
            timeout=200,
        )

    return run


@pytest.mark.parametrize(("left", "goes_on"), [("7\n", True), ("", False)], ids=["its own", "the user's"])
def test_a_stop_file_that_a_lost_node_left_does_not_end_the_job_that_comes_back(
    tmp_path, requeue, left, goes_on
):
    stop = tmp_path / "results/run_7.h5.stop"
    stop.parent.mkdir()
    stop.write_text(left)
    os.utime(stop, (0, 0))
    ended = requeue()
    assert (ended.returncode == 0) == goes_on, ended.stderr
    assert "interrupted" not in ended.stderr
    assert stop.exists() == (not goes_on) and (tmp_path / "results/run_7.h5").exists() == goes_on


def test_a_job_that_is_told_to_leave_before_its_ranks_start_makes_a_round_and_comes_back(tmp_path, requeue):
    """As one is at once whose time limit is no longer than the notice that it asks for."""
    told = "if [[ $* == *hpctrip* ]]; then kill -USR2 $PPID; until [[ -s results/run_7.h5.stop ]]; do :; done; fi"
    ended = requeue(f'{told}; exec "$@"')
    assert ended.returncode == 0, ended.stderr
    assert "requeue.sh: told to leave " in ended.stdout
    assert (
        ended.stdout.count(
            "asked to stop before the first round: the run ends once it is a round further (stop file"
        )
        == 1
    )
    assert ended.stderr.startswith("hpctrip: interrupted after round 1: stop file")
    assert ended.stdout.endswith("requeued, 99 more to come at most\nrequeue 7\n")
    assert not (tmp_path / "results/run_7.h5.stop").exists()
