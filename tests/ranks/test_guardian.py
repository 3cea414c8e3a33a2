"""A start that does not come to its end is ended, with a line about who is in the way."""

import os
import time
from pathlib import Path

import pytest

from hpctrip.base.errors import InputError
from hpctrip.ranks.watchdog.guardian import LIMIT, Guardian

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")


def processes_with(mark):
    """Ids of the processes whose environment holds the mark."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
        except OSError:  # it has ended, or is another user's
            pass
    return pids


@pytest.fixture
def ends(launch, tmp_path):
    """{rank: report} of a start that does not end; nothing is left over. One rank speaks for
    all where they began at the same time."""

    def run(n, *args, limit_s=45, **environment):
        mark = str(tmp_path / "mark")
        env = {LIMIT: str(limit_s), "MARK": mark, **environment}
        ended = launch(n, *args, "--out", tmp_path / "run.h5", env=env, script=HERE / "held_up.py")
        assert ended.code != 0
        deadline = time.monotonic() + 30
        while left := processes_with(mark):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
        reports = {}
        for line in ended.report:
            who, _, where = line.partition(" and ends now: ")
            who, _, limit = who.partition(": the job has not started within ")
            assert limit == f"{limit_s} s (HPCTRIP_START_S)", line
            rank, _, machine = who.removeprefix("hpctrip: rank ").partition(" on ")
            assert machine.startswith(f"{os.uname().nodename} (process ")
            reports[int(rank)] = where
        return reports

    return run


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("stopped", "this rank is stopped; before, it loads Python packages"),
        ("hangs", "this rank loads Python packages"),
    ],
    ids=["stopped", "hangs"],
)
def test_a_rank_that_does_not_come_through_its_imports_ends_the_job_and_is_named(ends, tiny, how, words):
    assert ends(3, tiny, limit_s=10, HELD_UP=how)[1] == words


@pytest.mark.mpi
def test_a_rank_that_never_begins_ends_the_job_too(ends, tiny):
    reports = ends(3, tiny, HELD_UP="never starts")
    assert reports and set(reports) <= {0, 2}
    for where in reports.values():
        assert where.startswith(
            "this rank waits in MPI_Init for others of the 3 ranks; who says nothing here never"
        )


@pytest.mark.mpi
def test_an_input_that_cannot_be_read_to_its_end_ends_the_job(ends, tiny, tmp_path):
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(1000)\n")
    reports = ends(3, tiny, "-o", f"plugins=['{tmp_path / 'hangs.py'}']", HELD_UP="")
    assert reports and set(reports.values()) <= {
        "this rank reads the input",
        "this rank waits for rank 0 to read the input",
    }


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setenv("PMI_RANK", "0")
    return monkeypatch


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_the_guardian_leaves_when_the_start_is_over(launched):
    before = children()
    with Guardian() as guardian:
        assert len(children()) == len(before) + 1
        guardian.reach(1)
        guardian.over()
        assert children() == before
        guardian.reach(2)
    assert children() == before


def test_a_start_that_fails_has_no_guardian_any_more(launched):
    before = children()
    with pytest.raises(InputError), Guardian():
        raise InputError("seed", "is wrong")
    assert children() == before


def test_a_process_alone_needs_none(launched):
    launched.setenv("PMI_SIZE", "1")
    before = children()
    with Guardian():
        assert children() == before


@pytest.mark.parametrize("limit", ["soon", "", "0", "-1", "nan", "9" * 10_000 + "x"])
def test_a_limit_that_is_no_time_is_refused_by_one_rank(launched, hpctrip, tiny, limit):
    launched.setenv(LIMIT, limit)
    hpctrip("run", tiny).check_refused(["HPCTRIP_START_S: is ", "; a number of seconds above 0"])
    launched.setenv("PMI_RANK", "1")
    assert hpctrip("run", tiny).code == 2 and hpctrip("run", tiny).err == ""
