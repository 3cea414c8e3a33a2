"""Killed at any moment, a run leaves a results file that opens; killed in part, it ends as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="no /proc: ranks cannot be told apart"
    ),
]
FIRST_ROW_S = 150
"""For starting three ranks and one round: seconds, unless the cores are taken."""
ENDS_WITHIN_S = 30
CHECKPOINTS = {"run.h5.ckpt0", "run.h5.ckpt1"}
"""A killed rank ends the job in less than 10 s on an idle machine; this is for one whose cores are all taken."""


@pytest.fixture
def endless(launch, tiny, tmp_path):
    """(process, results file) of a run on three ranks that has finished a round and would go on for long."""
    path = tmp_path / "run.h5"
    process = launch.start(3, tiny, "-o", "stop.max_rounds=100000", "--out", path)
    try:
        deadline = time.monotonic() + FIRST_ROW_S
        while not path.exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "no first row"
            time.sleep(0.01)
        yield process, path
    finally:
        launch.kill(process)
        process.communicate()


@pytest.mark.parametrize("seed", range(4))
def test_a_run_killed_at_any_moment_leaves_a_file_that_opens(seed, endless, launch, hpctrip, tiny):
    process, path = endless
    time.sleep(np.random.default_rng(seed).uniform(0, 1.5))
    launch.kill(process)
    process.communicate()
    run = open_run(path)
    assert run.meta["status"] == "running" and len(run.rounds) >= 1 and run.meta["params_digest"] == ""
    assert verify(run) == []
    assert hpctrip("show", "--status", path).out == "running\n"
    shown = hpctrip("show", path)
    assert shown.code == 0 and "running" in shown.out
    path.with_name(f"run.h5.ckpt1.{'0' * 16}.tmp").write_bytes(
        b"half a checkpoint"
    )  # the next run clears it away
    assert hpctrip("run", tiny, "-o", "stop.max_rounds=1", "--out", path, "--overwrite").code == 0
    assert {file.name for file in path.parent.iterdir()} <= {"run.h5", *CHECKPOINTS}
    assert open_run(path).meta["status"] == "finished"


def test_killing_one_host_ends_the_job(endless, launch, capsys):
    process, path = endless
    ranks = launch.ranks(process)
    assert len(ranks) == 3
    killed = time.monotonic()
    os.kill(ranks[2], signal.SIGKILL)
    try:
        process.communicate(timeout=ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job outlives its host by {ENDS_WITHIN_S} s")
    with capsys.disabled():
        print(f" [the job ended {time.monotonic() - killed:.1f} s after its host] ", end="")
    assert process.returncode != 0
    assert open_run(path).meta["status"] == "running"
