"""Software environment of this process: versions, source commit, command line."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import hpctrip
from hpctrip.base.text import encodable

SLURM = {
    "slurm_cluster": "SLURM_CLUSTER_NAME",
    "slurm_job": "SLURM_JOB_ID",
    "slurm_step": "SLURM_STEP_ID",
    "slurm_nodes": "SLURM_JOB_NODELIST",
}
"""{attribute of results files: Slurm's environment variable}, by which they are joined with the accounting of jobs."""


def environment(mpi_library: str = "") -> dict[str, str | bool]:
    """Attributes of the results file that describe this process (see `schema.ATTRIBUTES`).

    Versions are read from package metadata, without imports. `mpi_library` is the text of MPI_Get_library_version,
    which only the code that initialised MPI can call. Unknown values are empty.
    """
    commit, dirty = _source(Path(hpctrip.__file__).parents[1])
    return {
        "hpctrip_version": hpctrip.__version__,
        "python_version": platform.python_version(),
        **{f"{name}_version": _version(name) for name in ("torch", "numpy", "h5py", "mpi4py")},
        "mpi_library": mpi_library.strip("\0 \n"),
        "git_commit": commit,
        "git_dirty": dirty,
        "command": encodable(shlex.join(sys.orig_argv)),
        "folder": encodable(os.getcwd()),
        **{name: encodable(os.environ.get(variable, "")) for name, variable in SLURM.items()},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _source(tree: Path) -> tuple[str, bool]:
    """(commit, dirty) of a source tree; ("", False) where it is not the top of a git checkout.

    A site-packages folder may lie inside the checkout of something else, so only a `.git` right here counts.
    """
    if not (tree / ".git").exists():
        return "", False
    # one call for both, which takes no lock, as many jobs may start in one checkout; tags are passed over
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(tree), *describe],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", False
    commit, _, dirty = done.stdout.strip().partition("-")
    return commit, bool(dirty)
