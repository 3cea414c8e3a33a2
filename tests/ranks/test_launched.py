"""How many ranks a launcher has started, by the variables of its environment."""

import os
import pty
import subprocess
import sys

import pytest

from hpctrip.base.process import launched_size

TASK = """
import fcntl, sys, termios
if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def task(request):
    """Process id of a task that srun has started, with a terminal of its own (`srun --pty`) or without."""
    ends = pty.openpty() if request.param else os.pipe()[::-1]
    command = [sys.executable, "-c", TASK]
    with subprocess.Popen(command, stdin=ends[1], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(("task", "size"), [(False, 3), (True, 1)], indirect=["task"])
def test_the_variables_of_a_task_of_srun_do_not_count_in_a_shell_of_it(task, size, monkeypatch):
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    monkeypatch.setenv("SLURM_TASK_PID", str(task))
    assert launched_size() == size
    monkeypatch.setenv("SLURM_TASK_PID", str(os.getpid()))  # srun has started this process itself
    assert launched_size() == 3
    monkeypatch.setenv("PMI_SIZE", "2")  # mpirun, in such a shell
    assert launched_size() == 2
