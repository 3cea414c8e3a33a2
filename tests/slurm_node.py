"""Whether this machine is a node of a Slurm that answers: what the tests of slurm/ need."""

import os
import shutil
import subprocess

HOST = os.uname().nodename.split(".")[0]


def is_a_slurm_node() -> bool:
    """The temporary folder of a test is on this machine only, so the job has to run here."""
    if shutil.which("sinfo") is None:
        return False
    question = ["sinfo", "--noheader", "--Node", f"--nodes={HOST}", "--format=%t"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return False
    return bool({"idle", "mix", "alloc"} & set(answer.stdout.split()))
