"""Studies whose processes are killed, runs that fail, and two studies at once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from small_study import BASE, STUDY, ledger_of

from hpctrip.base.process import start_time
from hpctrip.record.lock import OutputLock
from hpctrip.record.reader import open_run
from hpctrip.runner.job_status import JobStatus
from hpctrip.studies import execute
from hpctrip.studies.studies import read_studies

WITHOUT_FIGURE = STUDY[: STUDY.index("[[figure]]")]
POLICY = """
import os, signal, time
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.baselines import Static

@POLICIES.add
class Odd(Static):
    kind = "{kind}"

    def select(self, sites, history, rng):
{first}
        return super().select(sites, history, rng)
"""
FAULTY = POLICY.format(
    kind="faulty",
    first="""\
        if self.k == 3:
            raise RuntimeError("a mistake in a plug-in")
        if self.k == 4:
            os.kill(os.getpid(), signal.SIGKILL)""",
)
LEAVING = POLICY.format(
    kind="leaving",
    first="""\
        if self.k == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)""",
)


@pytest.fixture
def folder(tmp_path):
    """Folder with the small study, which writes a checkpoint after every round."""
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "study.toml").write_text(WITHOUT_FIGURE + "[common.checkpoint]\nevery_rounds = 1\n")
    return tmp_path


@pytest.fixture
def begin(launch, folder):
    """`begin(*arguments)`: start the study as a process of its own."""
    command = ("study", folder / "study.toml", "--out", folder / "out", "--jobs", "2")

    def start(*arguments):
        return launch.start(0, *command, *arguments)

    return start


def finished(folder):
    """{file: its modification time} of the finished runs."""
    files = (folder / "out" / "runs").glob("*.h5")
    return {file: file.stat().st_mtime_ns for file in files if open_run(file).status == "finished"}


def wait_for(condition, process):
    deadline = time.monotonic() + 250
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_at_a_random_moment_it_goes_on_to_the_end_of_an_undisturbed_one(
    begin, folder, launch, study, made
):
    process = begin()
    wait_for(lambda: finished(folder), process)
    time.sleep(np.random.default_rng(7).uniform(0, 1))
    launch.kill(process)  # the study; its runs end with it
    process.communicate()
    before = finished(folder)
    listed = study(folder, do="status")
    assert listed.out.count("finished  ") == len(before)  # whatever the ledger said last

    assert study(folder, "--jobs", "2").code == 0
    after = finished(folder)
    assert len(after) == 4 and before.items() <= after.items()  # no run was made twice
    ledgers = [ledger_of(at).drop(columns=["wall_s", "file_state"]) for at in (folder, made.folder)]
    assert ledgers[0].equals(ledgers[1]) and ledgers[0]["digest"].nunique() == 4


def test_terminated_after_a_run_has_left_by_itself_it_terminates_the_others(begin, folder):
    (folder / "leaving.py").write_text(LEAVING)
    base = BASE.replace('"static"', '"leaving"').replace("max_rounds = 6", "max_rounds = 5000")
    (folder / "base.toml").write_text(base + "plugins = ['leaving.py']\n")
    study = folder / "study.toml"
    study.write_text(study.read_text().replace("[4, 5]", "[4]"))
    process = begin()
    wait_for(lambda: list(folder.glob("out/runs/*.ckpt0")), process)
    time.sleep(2)  # the run of k = 2 has left after its first rounds
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 85, out + err
    assert out.count("interrupted: ") == 2
    assert "0 of 2 runs are finished; continue with: python -m hpctrip study" in err
    assert ledger_of(folder)["status"].loc["policy.k = 3, seed 4"] == "interrupted"


def test_a_run_that_leaves_by_itself_does_not_keep_the_others_from_being_made(folder, study):
    (folder / "leaving.py").write_text(LEAVING)
    (folder / "base.toml").write_text(BASE.replace('"static"', '"leaving"') + "plugins = ['leaving.py']\n")
    ended = study(folder, "-o", "seed=4", "--jobs", "1")
    assert ended.code == 85, ended.err
    assert "interrupted: policy.k = 2, seed 4: " in ended.out and "SIGTERM received by rank 0" in ended.out
    assert "1 of 2 runs are finished; continue with: python -m hpctrip study" in ended.err
    assert ledger_of(folder)["status"]["policy.k = 3, seed 4"] == "finished"
    assert (folder / "out/two/table.csv").exists()


LOUD = """
from hpctrip.api import CALLBACKS, Callback
@CALLBACKS.add
class Loud(Callback):
    kind = "loud"
    def round(self, row):
        raise RuntimeError("the disk quota is used up")
"""


def test_the_warnings_of_a_finished_run_are_printed_and_kept(folder, study):
    (folder / "loud.py").write_text(LOUD)
    words = [
        "--plugin",
        folder / "loud.py",
        "-o",
        "callbacks.loud.enabled=true",
        "-o",
        "seed=4",
        "-o",
        "policy.k=2",
    ]
    ended = study(folder, *words)
    warning = (
        "warning: callbacks.loud, round 1: RuntimeError: the disk quota is used up; it is not called again"
    )
    assert ended.code == 0 and f"policy.k = 2, seed 4: {warning}" in ended.out, ended.err
    for _ in range(2):  # from the file, and from the ledger
        assert warning in study(folder, *words, do="status").out
    assert ledger_of(folder)["warnings"].tolist() == [warning]


def test_a_run_tells_its_state_round_and_reason_while_it_runs_and_at_its_end(folder, hpctrip):
    status = folder / "s.json"
    lines = ("-o", "interrupt.job_s=1e-9", "--status", status)
    assert (
        hpctrip("run", folder / "base.toml", "-o", "policy.k=2", *lines, "--out", folder / "a.h5").code == 85
    )
    told = JobStatus.read(status)
    assert (told.state, told.exit_code, told.round) == (
        "interrupted",
        85,
        1,
    ) and "the job ends" in told.reason
    again = ("-o", "policy.k=2", "--resume", "--status", status, "--out", folder / "a.h5")
    assert hpctrip("run", folder / "base.toml", *again).code == 0
    told = JobStatus.read(status)
    assert (told.state, told.exit_code, told.round, told.reason) == ("finished", 0, 6, "")
    with OutputLock(folder / "a.h5"):
        assert hpctrip("run", folder / "base.toml", *again).code == 2
    assert JobStatus.read(status) == told  # of the process that holds the run
    assert hpctrip("run", folder / "base.toml", *again, "-o", "train.lr=0.5").code == 2
    assert JobStatus.read(status).state == "failed"
    status.write_text('{"state": "odd"}')
    assert JobStatus.read(status) is None


def test_where_the_job_ends_no_more_runs_are_started(folder, study):
    ended = study(folder, "-o", "interrupt.job_s=1e-9", "--jobs", "1")
    assert ended.code == 85 and ended.out.count("interrupted: ") == 1, ended
    assert ledger_of(folder)["status"].tolist() == ["interrupted", *["planned"] * 3]


def test_a_run_on_several_ranks_ends_where_its_study_is_gone(begin, folder, monkeypatch):
    pids = folder / "pids"
    monkeypatch.setenv("HPCTRIP_LAUNCHER", f"sh -c 'echo $$ >> {pids}; exec sleep 200' {{n}} {{python}}")
    process = begin("--ranks", "2")
    wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), process)
    process.kill()
    process.communicate()
    for pid in map(int, pids.read_text().split()):
        deadline = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_two_studies_at_once_share_their_runs_and_make_none_twice(begin, folder, hpctrip):
    (folder / "second.toml").write_text((folder / "study.toml").read_text().replace('"two"', '"second"', 1))
    first = begin()
    wait_for(lambda: list(folder.glob("out/runs/*.lock")), first)
    second = hpctrip("study", folder / "second.toml", "--out", folder / "out", "--jobs", "2")
    out, err = first.communicate(timeout=280)
    assert first.returncode == second.code == 0, out + err + second.err
    ledgers = [ledger_of(folder, name) for name in ("two", "second")]
    assert ledgers[0].equals(ledgers[1]) and set(ledgers[0]["status"]) == {"finished"}
    for file in finished(folder):
        assert len(open_run(file).meta["starts"]) == 1


def test_a_run_that_fails_and_one_whose_process_dies_are_reported_at_the_end_and_the_rest_goes_on(
    tmp_path, study
):
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "base.toml").write_text(BASE.replace('"static"', '"faulty"') + "plugins = ['faulty.py']\n")
    (tmp_path / "study.toml").write_text(
        WITHOUT_FIGURE.replace("[2, 3]", "[3, 4, 2]").replace("[4, 5]", "[4]")
    )
    ended = study(tmp_path, "--jobs", "1")
    assert ended.code == 1
    assert ended.report[0] == "hpctrip: 2 of 3 runs failed:"
    assert ": RuntimeError: a mistake in a plug-in (log: " in ended.err
    assert "policy.k = 4, seed 4: its process died by SIGKILL (log: " in ended.err
    ledger = ledger_of(tmp_path)
    assert ledger["status"].tolist() == ["failed", "failed", "finished"]
    log = tmp_path / "out/logs" / f"{ledger['identity'].iloc[0]}.log"
    assert "RuntimeError: a mistake in a plug-in" in log.read_text() and "Traceback" in log.read_text()
    assert "0 of 1" in ended.out and "policy.k = 2" in ended.out  # the table of what there is

    (tmp_path / "faulty.py").write_text(FAULTY.replace("self.k ==", "self.k == 10 *"))
    mended = study(tmp_path, do="status")  # other code makes other runs
    assert "3 runs: 2 planned, 1 stale" in mended.out


def test_a_launcher_that_fails_is_quoted_by_the_last_line_of_a_huge_log(folder, study, monkeypatch):
    (folder / "launcher.sh").write_text("yes | head -c 300000; echo it rained; exit 2")
    monkeypatch.setenv("HPCTRIP_LAUNCHER", f"sh {folder}/launcher.sh {{n}} {{python}}")
    (read,) = read_studies(str(folder / "study.toml"), folder / "out")
    log = read.runs.log(read.entries[0].identity)
    log.parent.mkdir(parents=True)
    log.touch()
    os.truncate(log, 2**40)
    study(folder, "--only", "k = 2, seed 4", "--jobs", "1", "--ranks", "2")
    assert read.lines()[0].reason == "exit code 2, after: it rained"


@pytest.mark.parametrize("launcher", ["no-such-launcher", "sh -c 'exec", "  "])
def test_a_launcher_that_cannot_be_started_is_refused_before_any_run(folder, study, monkeypatch, launcher):
    monkeypatch.setenv("HPCTRIP_LAUNCHER", launcher)
    ended = study(folder, "--ranks", "2")
    assert ended.code == 2
    assert ended.err == (
        f"hpctrip: HPCTRIP_LAUNCHER={launcher}: is not a command that can be started here; "
        'set HPCTRIP_LAUNCHER to what starts ranks, e.g. "mpirun -np {n} {python}"\n'
    )
    assert set(ledger_of(folder)["status"]) == {"planned"}


def test_two_runs_of_three_ranks_use_six_different_gpus_of_eight(folder, study, monkeypatch):
    monkeypatch.setattr(execute, "visible_gpus", lambda: [str(number) for number in range(8)])
    seen, both = folder / "seen", f"until [ $(wc -l < {folder}/seen) -ge 2 ]; do sleep 0.05; done"
    launcher = f"sh -c 'echo $CUDA_VISIBLE_DEVICES >> {seen}; {both}; exit 2' {{n}} {{python}}"
    monkeypatch.setenv("HPCTRIP_LAUNCHER", launcher)
    ended = study(folder, "--ranks", "3", "-o", "seed=4")
    assert "2 missing, 2 in parallel, 3 ranks each" in ended.out
    assert sorted(gpu for line in seen.read_text().split() for gpu in line.split(",")) == list("012345")


def test_runs_of_several_threads_leave_a_core_to_each(folder, study, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    report = study(folder, "-o", "ranks.threads=4", "--samples-per-second", "1000", do="plan").out
    assert "2 in parallel (" in report, report


def test_a_launcher_that_starts_nothing_fails_instead_of_asking_for_another_start(folder, study, monkeypatch):
    monkeypatch.setenv("HPCTRIP_LAUNCHER", "true")
    ended = study(folder, "--only", "k = 2, seed 4", "--jobs", "1", "--ranks", "2")
    assert ended.code == 1 and "ended with exit code 0, but made no results" in ended.err


def test_the_runs_of_a_study_count_the_time_of_their_job_from_the_start_of_the_study(
    folder, study, monkeypatch
):
    starts = folder / "starts"
    launcher = f"sh -c 'echo $HPCTRIP_JOB_START >> {starts}; exit 2' {{n}} {{python}}"
    monkeypatch.setenv("HPCTRIP_LAUNCHER", launcher)
    for begun in ("", "1700000000"):  # by the system; by the job script
        monkeypatch.setenv("HPCTRIP_JOB_START", begun)
        starts.unlink(missing_ok=True)
        study(folder, "--jobs", "1", "--ranks", "2")
        found = list(map(float, starts.read_text().split()))
        assert found == pytest.approx([float(begun or start_time())] * 4, abs=1)
