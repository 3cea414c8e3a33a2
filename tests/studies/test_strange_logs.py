"""Logs of a study that are unexpectedly large are read in part only."""

from __future__ import annotations

import os

import pytest
from small_study import BASE, STUDY

from hpctrip.studies.studies import StudyOptions, read_studies


@pytest.fixture
def planned(tmp_path):
    """Ledger of the small study before any run."""
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "study.toml").write_text(STUDY)
    (study,) = read_studies(str(tmp_path / "study.toml"), StudyOptions(tmp_path / "out"))
    for folder in ("runs", "logs"):
        (tmp_path / "out" / folder).mkdir(parents=True)
    return study.ledger


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
