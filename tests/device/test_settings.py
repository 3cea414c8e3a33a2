"""Settings are put back however a run ends. NVML is played by nvml.c; the process that holds the settings is real."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpctrip.device.nvml import Gpu
from hpctrip.device.recovery_log import FOLDER, AppliedSettings, RecoveryNote, leftovers
from hpctrip.device.settings import GpuSettings, SettingsProcess

A, B = "GPU-aaaa-0", "GPU-bbbb-1"
ROOT = Path(__file__).parents[2]
HOLDS = f"""
import sys, time
from hpctrip.device.settings import SettingsProcess, GpuSettings
with SettingsProcess(["{A}"]) as process:
    print(process.apply(GpuSettings(power_cap_w=200.0, clock_mhz=900)).made, process._process.pid, flush=True)
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
def test_the_run_and_the_process_that_holds_its_settings_mean_the_same_folder(
    gpus, named, tmp_path, monkeypatch
):
    """Though it works in another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(FOLDER, named)
    with SettingsProcess([A]) as process:
        assert process.apply(GpuSettings(clock_mhz=900)).refused == ()
        assert len(list(tmp_path.glob(f"notes/*/{A}.json"))) == 1


def test_settings_are_made_on_the_named_gpus_changed_and_put_back(gpus):
    with SettingsProcess([A]) as process:
        assert process.apply(GpuSettings(power_cap_w=200.0, clock_mhz=1200)).made == (
            f"{A}: power cap 200 W",
            f"{A}: clock 1200 MHz",
        )
        assert gpus() == ([200, 350], [1200, 0])
        process.apply(GpuSettings(power_cap_w=150.0))
        assert gpus() == ([150, 350], [1200, 0])
    assert gpus() == ([350, 350], [0, 0]) and list(leftovers()) == []


def test_refused_settings_are_reported_and_the_rest_is_applied(gpus):
    with SettingsProcess([A, "cccc", B]) as process:
        applied = process.apply(GpuSettings(power_cap_w=90.0))
        assert applied.made == () and applied.refused == (
            f"{A}: power cap 90 W: it takes 100 to 400 W",
            "GPU-cccc: Not Found",
            f"{B}: power cap 90 W: it takes 100 to 400 W",
        )
        (gpus.state / "denied").touch()
        assert process.apply(GpuSettings(clock_mhz=900)).refused[0] == f"{A}: Insufficient Permissions"
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


def leave(state, process=4242):
    """Settings of the first GPU that a run and its daemon have left, killed together as by a batch system."""
    note = RecoveryNote.take(Gpu.of(A), process)
    note.applied = AppliedSettings(cap_mw=200_000, cap_before_mw=350_000, clock_mhz=900)
    note.write()
    note.file.close()  # its process is gone
    (state / "cap0").write_text("200000")
    (state / "clock0").write_text("900")


@pytest.fixture
def killed_with_its_daemon(gpus):
    leave(gpus.state)


def test_where_the_daemon_is_killed_too_the_next_start_finds_and_undoes_its_settings(gpus):
    run = holding("time.sleep(600)")
    daemon = int(run.stdout.readline().split()[-1])
    os.kill(daemon, signal.SIGKILL)
    run.kill()
    run.communicate()
    assert soon(lambda: list(leftovers()) != [])
    assert gpus() == ([200, 350], [900, 0])
    (left,) = leftovers()
    applied = f"{A}: power cap 200 W (before: 350 W) and clock 900 MHz"
    assert str(left) == f"{applied}, left by process {run.pid}, which was killed"
    left.put_back()
    assert gpus() == ([350, 350], [0, 0]) and list(leftovers()) == []


@pytest.mark.parametrize(
    ("gpu", "during", "after"),
    [
        (A, ([120, 350], [0, 0]), ([350, 350], [0, 0])),
        (B, ([200, 120], [900, 0]), ([200, 350], [900, 0])),
    ],
)
def test_a_run_undoes_what_a_killed_one_has_left_on_its_own_gpus(
    gpus, killed_with_its_daemon, gpu, during, after
):
    with SettingsProcess([gpu]) as process:
        process.apply(GpuSettings(power_cap_w=120.0))
        assert gpus() == during
    assert gpus() == after and len(list(leftovers())) == (gpu == B)


def test_one_run_at_a_time_holds_the_settings_of_a_gpu(gpus):
    cap, clock = GpuSettings(power_cap_w=300.0), GpuSettings(power_cap_w=250.0, clock_mhz=900)
    with SettingsProcess([A]) as first:
        first.apply(cap)
        with SettingsProcess([A, B]) as second:
            applied = second.apply(clock)
            held = f"{A}: another run (process {os.getpid()}) holds its settings"
            assert applied.refused == (held,) and applied.made[0] == f"{B}: power cap 250 W"
            assert gpus() == ([300, 250], [0, 900])
        assert gpus() == ([300, 350], [0, 0]) and list(leftovers()) == []
    with SettingsProcess([A]) as third:
        assert third.apply(clock).refused == ()
        assert gpus() == ([250, 350], [900, 0])
    assert gpus() == ([350, 350], [0, 0]) and list(leftovers()) == []


def test_a_cap_that_has_been_changed_since_is_left_as_it_is(gpus, killed_with_its_daemon):
    (gpus.state / "cap0").write_text("250000")
    (left,) = leftovers()
    left.put_back()
    assert gpus() == ([250, 350], [0, 0])


def test_a_note_of_before_the_machine_was_started_is_void(gpus, killed_with_its_daemon, monkeypatch):
    monkeypatch.setattr("hpctrip.device.recovery_log.boot_id", lambda: "another")
    assert list(leftovers()) == []


def test_notes_in_a_folder_that_others_can_write_are_ignored(gpus, killed_with_its_daemon, tmp_path):
    (folder,) = (tmp_path / "notes").iterdir()
    folder.chmod(0o777)
    assert list(leftovers()) == []
    with SettingsProcess([B]) as process:
        assert "not a folder of this user alone" in process.apply(GpuSettings(power_cap_w=120.0)).refused[0]
    assert gpus() == ([200, 350], [900, 0])
