"""Settings are put back however a run ends. NVML is played by nvml.c; runs that end and their helpers are real."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpctrip.device.nvml import Gpu
from hpctrip.device.recovery_log import FOLDER, RecoveryNote, leftovers
from hpctrip.device.settings import GpuSettings, HeldSettings

A, B = "GPU-aaaa-0", "GPU-bbbb-1"
ROOT = Path(__file__).parents[2]
HOLDS = f"""
import sys, time
from hpctrip.device.settings import HeldSettings, GpuSettings
with HeldSettings(["{A}"]) as held:
    print(held.apply(GpuSettings(power_cap_w=200.0, clock_mhz=900)).made, held._helper.pid, flush=True)
    END
"""


@pytest.fixture
def gpus(fake_nvml, tmp_path, monkeypatch):
    """`gpus()`: (caps in W, clocks in MHz, 0: free) of both GPUs."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "notes"))
    state = fake_nvml()

    def now():
        def number(name):
            file = state / name
            return int(file.read_text() or 0) if file.exists() else 0

        return [number(f"cap{gpu}") // 1000 for gpu in (0, 1)], [number(f"clock{gpu}") for gpu in (0, 1)]

    now.state = state
    return now


def soon(check):
    """Whether the check is true within half a minute."""
    for _ in range(600):
        if check():
            return True
        time.sleep(0.05)
    return False


def holding(end):
    """A process that holds settings and then ends in this way."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS.replace("END", end)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


@pytest.mark.parametrize("named", ["notes", "~/notes"])
def test_the_run_and_the_helper_that_waits_for_its_end_mean_the_same_folder(
    gpus, named, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(FOLDER, named)
    run = holding("import os; os._exit(1)")
    assert b"clock 900 MHz" in run.stdout.readline()
    run.communicate()
    assert len(list(tmp_path.glob(f"notes/*/{A}.json"))) == 1
    assert soon(lambda: gpus() == ([350, 350], [0, 0]))


def test_the_helper_ends_with_the_run(gpus):
    with HeldSettings([A]) as held:
        assert held.apply(GpuSettings(clock_mhz=900)).refused == ()
        assert held._helper.poll() is None
    assert held._helper.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_ends_jobs_does_not_end_the_helper(gpus, number):
    run = holding("time.sleep(600)")
    os.kill(int(run.stdout.readline().split()[-1]), number)
    run.kill()
    run.communicate()
    assert soon(lambda: gpus() == ([350, 350], [0, 0]))


def test_settings_are_made_on_the_named_gpus_changed_and_put_back(gpus):
    with HeldSettings([A]) as held:
        assert held.apply(GpuSettings(power_cap_w=200.0, clock_mhz=1200)).made == (
            f"{A}: power cap 200 W",
            f"{A}: clock 1200 MHz",
        )
        assert gpus() == ([200, 350], [1200, 0])
        held.apply(GpuSettings(power_cap_w=150.0))
        assert gpus() == ([150, 350], [1200, 0])
    assert gpus() == ([350, 350], [0, 0]) and list(leftovers()) == []


def test_refused_settings_are_reported_and_the_rest_is_applied(gpus):
    with HeldSettings([A, "cccc", B]) as held:
        applied = held.apply(GpuSettings(power_cap_w=90.0))
        assert applied.made == () and applied.refused == (
            f"{A}: power cap 90 W: it takes 100 to 400 W",
            "GPU-cccc: Not Found",
            f"{B}: power cap 90 W: it takes 100 to 400 W",
        )
        (gpus.state / "denied").touch()
        assert held.apply(GpuSettings(clock_mhz=900)).refused[0] == f"{A}: Insufficient Permissions"
        assert gpus() == ([350, 350], [0, 0])
    assert list(leftovers()) == []


@pytest.mark.parametrize(
    "end",
    [
        "raise RuntimeError",
        "import os; os._exit(1)",  # as the watchdog and MPI_Abort
    ],
)
def test_however_a_run_ends_the_settings_are_put_back(gpus, end):
    """Also where it is killed: see the next test."""
    run = holding(end)
    assert b"power cap 200 W" in run.stdout.readline()
    run.communicate()
    assert soon(lambda: gpus() == ([350, 350], [0, 0]))
    assert soon(lambda: list(leftovers()) == [])


def test_a_killed_run_leaves_no_setting(gpus, launch, tiny, tmp_path):
    (tmp_path / "gpu.py").write_text(
        "from hpctrip.runner import session\nsession.gpu_identity = lambda device: 'aaaa-0'\n"
    )
    lines = ("-o", "knobs={power_cap_w=200, clock_mhz=900}", "-o", "stop.max_rounds=100000")
    run = launch.start(0, "run", tiny, *lines, "--plugin", tmp_path / "gpu.py", "--out", tmp_path / "run.h5")
    try:
        assert soon(lambda: gpus() == ([200, 350], [900, 0]))
    finally:
        run.kill()
        run.communicate()
    assert soon(lambda: gpus() == ([350, 350], [0, 0]) and list(leftovers()) == [])


def leave(state):
    """Settings of the first GPU that a run and its helper have left, killed together as by a batch system."""
    note = RecoveryNote.take(Gpu.of(A))
    note.write(cap_mw=200_000, cap_before_mw=350_000, clock_mhz=900)
    note.file.close()  # its process is gone
    (state / "cap0").write_text("200000")
    (state / "clock0").write_text("900")


@pytest.fixture
def killed_with_its_helper(gpus):
    leave(gpus.state)


def test_where_the_helper_is_killed_too_the_next_start_finds_and_undoes_its_settings(gpus):
    run = holding("time.sleep(600)")
    helper = int(run.stdout.readline().split()[-1])
    os.kill(helper, signal.SIGKILL)
    run.kill()
    run.communicate()
    assert soon(lambda: list(leftovers()) != [])
    assert gpus() == ([200, 350], [900, 0])
    (left,) = leftovers()
    applied = f"{A}: power cap 200 W (before: 350 W) and clock 900 MHz"
    assert str(left) == f"{applied}, left by process {run.pid}, which was killed"
    left.restore()
    assert gpus() == ([350, 350], [0, 0]) and list(leftovers()) == []


@pytest.mark.parametrize(
    ("gpu", "during", "after"),
    [
        (A, ([120, 350], [0, 0]), ([350, 350], [0, 0])),
        (B, ([200, 120], [900, 0]), ([200, 350], [900, 0])),
    ],
)
def test_a_run_undoes_what_a_killed_one_has_left_on_its_own_gpus(
    gpus, killed_with_its_helper, gpu, during, after
):
    with HeldSettings([gpu]) as held:
        held.apply(GpuSettings(power_cap_w=120.0))
        assert gpus() == during
    assert gpus() == after and len(list(leftovers())) == (gpu == B)


def test_one_run_at_a_time_holds_the_settings_of_a_gpu(gpus):
    cap, clock = GpuSettings(power_cap_w=300.0), GpuSettings(power_cap_w=250.0, clock_mhz=900)
    with HeldSettings([A]) as first:
        first.apply(cap)
        with HeldSettings([A, B]) as second:
            applied = second.apply(clock)
            held = f"{A}: another run (process {os.getpid()}) holds its settings"
            assert applied.refused == (held,) and applied.made[0] == f"{B}: power cap 250 W"
            assert gpus() == ([300, 250], [0, 900])
        assert gpus() == ([300, 350], [0, 0]) and list(leftovers()) == []
    with HeldSettings([A]) as third:
        assert third.apply(clock).refused == ()
        assert gpus() == ([250, 350], [900, 0])
    assert gpus() == ([350, 350], [0, 0]) and list(leftovers()) == []


def test_a_cap_that_has_been_changed_since_is_left_as_it_is(gpus, killed_with_its_helper):
    (gpus.state / "cap0").write_text("250000")
    (left,) = leftovers()
    left.restore()
    assert gpus() == ([250, 350], [0, 0])


def test_a_note_of_before_the_machine_was_started_is_void(gpus, killed_with_its_helper, monkeypatch):
    monkeypatch.setattr("hpctrip.device.recovery_log.boot_id", lambda: "another")
    assert list(leftovers()) == []


def test_notes_in_a_folder_that_others_can_write_are_ignored(gpus, killed_with_its_helper, tmp_path):
    (folder,) = (tmp_path / "notes").iterdir()
    folder.chmod(0o777)
    assert list(leftovers()) == []
    with HeldSettings([B]) as held:
        assert "not a folder of this user alone" in held.apply(GpuSettings(power_cap_w=120.0)).refused[0]
    assert gpus() == ([200, 350], [900, 0])
