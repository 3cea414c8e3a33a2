"""A start that does not come to its end is ended, with a line about the rank that is in the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import check_nothing_runs

from hpctrip.base.errors import InputError
from hpctrip.ranks.watchdog.guardian import LIMIT, LOADING, MEETING, READING, Guardian

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
HANGS = """
import os, signal, sys, time
from hpctrip.ranks.watchdog.guardian import Guardian
with Guardian() as guardian:
    guardian.reach(int(sys.argv[1]))
    if sys.argv[2] == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1000)
"""


def where(line, limit_s):
    """(rank, its stage) in a guardian's report."""
    who, _, stage = line.partition(" and ends now: ")
    who, _, limit = who.partition(": the job has not started within ")
    assert limit == f"{limit_s:g} s (HPCTRIP_START_S)", line
    rank, _, machine = who.removeprefix("hpctrip: rank ").partition(" on ")
    assert machine.startswith(f"{os.uname().nodename} (process ")
    return int(rank), stage


@pytest.mark.parametrize(
    ("rank", "stage", "how", "words"),
    [
        (1, LOADING, "stopped", "this rank is stopped; before, it loads Python packages"),
        (1, LOADING, "hangs", "this rank loads Python packages"),
        (
            2,
            MEETING,
            "hangs",
            "this rank waits in MPI_Init for others of the 3 ranks; those without a report",
        ),
        (0, READING, "hangs", "this rank reads the input"),
        (1, READING, "hangs", "this rank waits for rank 0 to read the input"),
    ],
)
def test_a_rank_that_does_not_come_to_the_end_of_its_start_is_killed_and_named(
    rank, stage, how, words, tmp_path
):
    """One process that takes itself for one of three ranks; nothing is left of it."""
    env = os.environ | {LIMIT: "0.5", "MARK": str(tmp_path), "PMI_SIZE": "3", "PMI_RANK": str(rank)}
    command = [sys.executable, "-c", HANGS, str(stage), how]
    ended = subprocess.run(
        command, env=env | {"PYTHONPATH": str(HERE.parents[1])}, capture_output=True, text=True
    )
    assert ended.returncode == -9
    named, text = where(ended.stderr.strip(), 0.5)
    assert named == rank and text.startswith(words)
    check_nothing_runs(str(tmp_path))


@pytest.mark.mpi
def test_a_rank_that_does_not_come_through_its_imports_ends_the_job_and_is_named(launch, tiny, tmp_path):
    ended = launch(
        2,
        tiny,
        "--out",
        tmp_path / "run.h5",
        env={LIMIT: "10", "MARK": str(tmp_path)},
        script=HERE / "held_up.py",
    )
    assert ended.code != 0
    assert dict(where(line, 10) for line in ended.report)[1] == "this rank loads Python packages"
    check_nothing_runs(str(tmp_path))


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setenv("PMI_RANK", "0")
    return monkeypatch


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_a_guardian_lasts_as_long_as_the_start_of_one_of_several_ranks(launched):
    before = children()
    with Guardian() as guardian:
        assert len(children()) == len(before) + 1
        guardian.reach(1)
        guardian.over()
        assert children() == before
        guardian.reach(2)
    with pytest.raises(InputError), Guardian():
        raise InputError("seed", "is wrong")
    assert children() == before
    launched.setenv("PMI_SIZE", "1")
    with Guardian():
        assert children() == before


@pytest.mark.parametrize("limit", ["soon", "", "0", "-1", "nan", "9" * 10_000 + "x"])
def test_a_limit_that_is_no_time_is_refused_by_one_rank(launched, hpctrip, tiny, limit):
    launched.setenv(LIMIT, limit)
    hpctrip("run", tiny).check_refused(["HPCTRIP_START_S: is ", "; a number of seconds above 0"])
    launched.setenv("PMI_RANK", "1")
    assert hpctrip("run", tiny).code == 2 and hpctrip("run", tiny).err == ""
