"""Runs on several ranks, signalled, stopped, killed or out of disk: each goes on to the undisturbed bits."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from datagrams import STRANGE, attack, udp_addresses

from hpctrip.record.checkpoint import generations, newest
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

REPO = Path(__file__).parents[2]
TINY = {
    "sites.num_sites": 6,
    "workload.train_samples": 120,
    "workload.test_samples": 100,
    "stop.target_accuracy": 1.0,
    "checkpoint.every_rounds": 1,
}
LONG, SHORT = 100_000, 12

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here"),
]


def hpctrips(*words, **settings):
    """A command line; `run` is the tiny scenario's, with these settings."""
    lines = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    lines += [f"{key}={value}" for key, value in TINY.items()] if words[0] == "run" else []
    return [*map(str, words), *(word for line in lines for word in ("-o", line))]


class Job:
    """One `mpirun -n SIZE python -m hpctrip ...` in the background."""

    def __init__(self, launch, log, size, *words, **settings):
        command = ["mpirun", "-n", str(size), sys.executable, "-m", "hpctrip", *hpctrips(*words, **settings)]
        self.launch, self.path = launch, log
        with open(log, "w") as file:
            environment = os.environ | {"PYTHONPATH": str(REPO)}
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)

    @property
    def log(self):
        return self.path.read_text()

    def after(self, text, limit_s=300):
        """Wait until the log has the text."""
        deadline = time.monotonic() + limit_s
        while text not in self.log:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log
            time.sleep(0.05)
        return self

    def pid(self, rank):
        """The process of a rank."""
        return self.launch.ranks(self.process)[rank]

    def code(self, limit_s=300):
        """The exit code; a hang fails the test."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"hangs\n{self.log}")


@pytest.fixture
def job(tmp_path, launch):
    jobs = []

    def start(size, *words, **settings):
        jobs.append(Job(launch, tmp_path / f"log{len(jobs)}", size, *words, **settings))
        return jobs[-1]

    yield start
    for one in jobs:
        if one.process.poll() is None:
            one.process.kill()


@pytest.fixture(scope="module")
def alone(hpctrip):
    """`alone(*words, **settings)`: hpctrip on one rank, in this process, to its end."""

    def run(*words, **settings):
        ended = hpctrip(*hpctrips(*words, **settings))
        assert ended.code == 0, ended.err

    return run


@pytest.fixture(scope="module")
def undisturbed(alone, tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "run.h5"
    alone("run", "--out", path, stop__max_rounds=SHORT)
    return open_run(path)


def assert_same(actual, expected):
    assert verify(actual) == [] and diff(actual, expected) == []
    assert actual.meta["stop_reason"] == expected.meta["stop_reason"]


def test_killed_on_3_ranks_then_on_2_then_finished_on_1(tmp_path, job, alone, undisturbed, hpctrip):
    out = tmp_path / "run.h5"
    one = job(3, "run", "--out", out, stop__max_rounds=LONG).after("round    3")
    os.kill(one.pid(0), signal.SIGKILL)
    assert one.code() != 0 and verify(open_run(out)) == []
    assert open_run(out).meta["status"] == "running" and open_run(out).meta["params_digest"] == ""
    assert hpctrip("show", "--status", out).out == "running\n" and hpctrip("show", out).code == 0
    two = job(2, "resume", out, stop__max_rounds=LONG).after("resuming after round")
    at = newest(out)[0].state.round
    two.after(f"round {at + 2:4d}")
    os.kill(two.pid(1), signal.SIGKILL)
    assert two.code() != 0
    if newest(out)[0].state.round < SHORT:
        alone("resume", out, stop__max_rounds=SHORT)
        assert_same(open_run(out), undisturbed)


def test_a_signal_to_any_rank_ends_the_run_with_code_85_and_it_goes_on_elsewhere(
    tmp_path, job, alone, undisturbed
):
    out = tmp_path / "run.h5"
    one = job(3, "run", "--out", out, stop__max_rounds=LONG).after("round    1")
    os.kill(one.pid(2), signal.SIGUSR2)
    assert one.code() == 85, one.log
    assert "SIGUSR2 received by rank 2 on" in one.log and "Traceback" not in one.log
    assert open_run(out).meta["status"] == "interrupted"
    if newest(out)[0].state.round < SHORT:
        alone("resume", out, stop__max_rounds=SHORT)
        assert_same(open_run(out), undisturbed)


@pytest.fixture
def handed_on():
    if "Hydra" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.title():
        pytest.skip("this mpirun does not hand signals on: Open MPI's kills the ranks")


def test_sigterm_to_mpirun_ends_the_run_with_code_85(tmp_path, job, handed_on):
    one = job(2, "run", "--out", tmp_path / "run.h5", stop__max_rounds=LONG).after("round    1")
    one.process.send_signal(signal.SIGTERM)
    assert one.code() == 85, one.log
    assert f"resume with: python -m hpctrip resume {tmp_path / 'run.h5'}" in one.log
    assert "Traceback" not in one.log


def test_ctrl_c_twice_ends_mpirun_at_once_without_tracebacks(tmp_path, job, handed_on):
    slow = {"stop__max_rounds": LONG, "train__local_epochs": 300}
    one = job(2, "run", "--out", tmp_path / "run.h5", **slow).after("round    1")
    one.process.send_signal(signal.SIGINT)
    one.after("Ctrl-C again ends it at once")
    one.process.send_signal(signal.SIGINT)
    one.code()  # is mpirun's own now
    assert "interrupted after round" not in one.log and "resume with" not in one.log
    assert "Traceback" not in one.log and "KeyboardInterrupt" not in one.log
    assert verify(open_run(tmp_path / "run.h5")) == []


def test_a_stopped_rank_is_named_with_its_host_and_phase_and_the_job_ends(tmp_path, job):
    one = job(3, "run", "--out", tmp_path / "run.h5", stop__max_rounds=LONG, watchdog__silent_s=3)
    os.kill(one.after("round    2").pid(0), signal.SIGSTOP)
    stopped = time.monotonic()
    assert one.code(limit_s=120) != 0
    assert time.monotonic() - stopped < 60  # the limit, and a busy machine's few seconds
    said = [
        line for line in one.log.splitlines() if "stuck: rank" in line
    ]  # by each that notices, at most once
    assert 1 <= len(said) <= 2, one.log
    assert all(f"stuck: rank 0 on {os.uname().nodename}" in line and "of round" in line for line in said)
    lines = one.log.splitlines()
    # each of the others shows where its main thread waits: in a collective of the main loop
    for alive in (1, 2):
        assert one.log.count(f"hpctrip: stacks of rank {alive} on") == 1
        places = [line for line in lines if line.startswith(f"hpctrip:   rank {alive}:   File")]
        assert any("/runner/loop.py" in place and place.endswith("in train") for place in places), one.log
        assert any("/ranks/mpi.py" in place for place in places), one.log


def test_datagrams_of_strangers_neither_end_a_job_nor_hide_that_a_rank_is_stopped(tmp_path, job):
    one = job(3, "run", "--out", tmp_path / "run.h5", stop__max_rounds=LONG, watchdog__silent_s=3)
    one.after("round    1")
    addresses = [address for rank in range(3) for address in udp_addresses(one.pid(rank))]
    assert [host for host, _ in addresses] == ["127.0.0.1"] * 3
    for _ in range(4):
        attack(STRANGE, addresses)
        time.sleep(0.5)
    assert one.process.poll() is None and "watchdog" not in one.log, one.log
    os.kill(one.pid(2), signal.SIGSTOP)
    assert one.code(limit_s=120) != 0
    assert "stuck: rank 2 on" in one.log, one.log


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MB: a checkpoint of the tiny model takes a part of it."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs takes root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_reported_and_after_making_room_the_run_goes_on(
    tmp_path, small_disk, job, alone, undisturbed
):
    out = small_disk / "run.h5"
    alone("run", "--out", out, stop__max_rounds=6)
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 1024):
                pass
        except OSError:
            pass
    before = len(open_run(out).rounds)
    two = job(2, "resume", out, stop__max_rounds=LONG)
    assert two.code() == 1, two.log
    assert "No space left on device; free some space" in two.log and "Traceback" not in two.log
    assert verify(open_run(out)) == [] and len(open_run(out).rounds) >= before
    assert any(file.exists() for file in generations(out))
    filler.unlink()
    alone("resume", out, stop__max_rounds=SHORT)
    assert_same(open_run(out), undisturbed)


def test_a_slice_of_the_kill_test(tmp_path):
    """A quorum killed while it writes a checkpoint and while it writes its results; a host of buffered rounds killed
    within a round."""
    arguments = ("--runs", "2", "--seed", "42885", "--states", "quorum,buffered", "--folder", tmp_path)
    command = [sys.executable, REPO / "benchmarks/kill_test.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same digest, clock, cohorts and accuracies as undisturbed: 2" in done.stdout
    assert "\nkilled: 3\n" in done.stdout
