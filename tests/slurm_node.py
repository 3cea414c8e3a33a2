"""What the tests of slurm/ share: whether this machine is a node of a Slurm that answers, and a user there."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HOST = os.uname().nodename.split(".")[0]
REPO = Path(__file__).parents[1]


@functools.cache
def is_a_slurm_node() -> bool:
    """The temporary folder of a test is on this machine only, so the job has to run here. Asked once by a process: one
    that is installed but does not run takes 20 s not to answer."""
    if shutil.which("sinfo") is None:
        return False
    question = ["sinfo", "--noheader", "--Node", f"--nodes={HOST}", "--format=%t"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return False
    return bool({"idle", "mix", "alloc"} & set(answer.stdout.split()))


def users_folder(folder: Path) -> Path:
    """A folder to submit from: the repository's scripts and inputs, and nothing that has run."""
    for name in ("slurm", "inputs"):
        (folder / name).symlink_to(REPO / name)
    return folder


def user_in(folder: Path, limit_s: float) -> Callable[..., str]:
    """`run(*command, **variables)`: the output of a command there, with the python and mpirun under test and none of
    the user's virtual environments; a command that fails, or takes longer, fails the test."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "HPCTRIP_VENV")
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] = str(REPO)

    def run(*command: object, **variables: str) -> str:
        done = subprocess.run(
            [*map(str, command)],
            cwd=folder,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
