"""What the system tells about processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpctrip.base.process import has_terminal, is_stopped, start_time

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")


def test_a_process_knows_when_it_started():
    code = "from hpctrip.base.process import start_time; print(start_time())"
    before = time.time()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick_s < float(done.stdout) < time.time()


def test_of_a_process_that_is_not_there_nothing_is_known(monkeypatch):
    assert not is_stopped(2**30) and not has_terminal(2**30)
    monkeypatch.setattr(os, "getpid", lambda: 2**30)
    before = time.time()
    assert before <= start_time() <= time.time()
