"""What somebody else has put into a study's folders: nothing is waited for, read without end or written through."""

from __future__ import annotations

import os

import pytest
from small_study import BASE, STUDY

from hpctrip.study.status import RunStatus
from hpctrip.study.studies import Asked, read_studies


@pytest.fixture
def planned(tmp_path):
    """The small study, of which nothing was made: its ledger."""
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "study.toml").write_text(STUDY)
    (study,) = read_studies(str(tmp_path / "study.toml"), Asked(tmp_path / "out"))
    for folder in ("runs", "logs"):
        (tmp_path / "out" / folder).mkdir(parents=True)
    return study.ledger


def test_pipes_in_place_of_a_lock_and_of_a_failure_hold_nobody_up(planned, launch, tmp_path):
    first, second = (entry.identity for entry in planned.entries[:2])
    os.mkfifo(f"{planned.runs.results(first)}.lock")
    os.mkfifo(planned.runs.failure(second))
    ended = launch(0, "study", tmp_path / "study.toml", "--out", tmp_path / "out", "--list", timeout=90)
    assert ended.code == 0, ended.err
    one, another, *_ = ended.out.splitlines()
    assert one.startswith("planned") and another.startswith("failed") and "is no regular file" in another


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (lambda path, secret: path.symlink_to(secret), "is a symbolic link, which is not followed here"),
        (
            lambda path, secret: os.truncate(os.open(path, os.O_RDWR | os.O_CREAT), 2**40),
            "holds 1,099,511,627,776",
        ),
    ],
)
def test_why_a_run_failed_is_read_from_a_small_file_of_the_folder_itself(planned, tmp_path, put, said):
    (tmp_path / "secret").write_text("password")
    entry = planned.entries[0]
    put(planned.runs.failure(entry.identity), tmp_path / "secret")
    line = planned.line(entry)
    assert line.status == RunStatus.FAILED and said in line.reason


def test_a_link_in_place_of_a_log_fails_its_run_and_is_not_written_through(planned, study, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    planned.runs.log(planned.entries[0].identity).symlink_to(precious)
    ended = study(tmp_path, "--only", "k = 2, seed 4", "--jobs", "1")
    assert "is a symbolic link, which is not written through" in ended.err + ended.out
    assert precious.read_text() == "mine"
    assert planned.lines()[0].status == RunStatus.FAILED


def test_of_a_long_log_only_the_end_is_read_where_a_launched_run_says_why_it_died(
    planned, study, tmp_path, monkeypatch
):
    (tmp_path / "launcher.sh").write_text("yes | head -c 300000; echo hpctrip: it rained; exit 2")
    monkeypatch.setenv("HPCTRIP_LAUNCHER", f"sh {tmp_path}/launcher.sh {{n}} {{python}}")
    log = planned.runs.log(planned.entries[0].identity)
    log.touch()
    os.truncate(log, 2**40)
    study(tmp_path, "--only", "k = 2, seed 4", "--jobs", "1", "--ranks", "2")
    assert planned.lines()[0].reason == "it rained"
