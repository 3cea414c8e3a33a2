"""A results file says with what it was made."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from hpctrip.cluster.results import ATTRIBUTES as CLUSTER_ATTRIBUTES
from hpctrip.record import schema
from hpctrip.record import writer as module
from hpctrip.record.writer import environment


def test_every_fact_is_an_attribute_of_the_results_file():
    facts = environment("MPICH 4.3\n\0")
    assert facts.keys() <= schema.ATTRIBUTES.keys()
    assert all(type(value) is type(schema.ATTRIBUTES[name].default) for name, value in facts.items())
    assert facts["numpy_version"] == np.__version__
    assert facts["mpi_library"] == "MPICH 4.3"
    assert sys.orig_argv[-1] in facts["command"]


def test_in_a_job_of_slurm_its_cluster_job_step_and_nodes_are_recorded(monkeypatch):
    for variable in module.SLURM.values():
        monkeypatch.delenv(variable, raising=False)
    assert {environment()[name] for name in module.SLURM} == {""}
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "alps")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "nid[001-002]")
    assert [environment()[name] for name in module.SLURM] == ["alps", "4711", "0", "nid[001-002]"]
    assert module.SLURM.keys() <= CLUSTER_ATTRIBUTES.keys()


def _git(folder, *command):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *identity, *command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_commit_of_a_checkout_and_whether_it_was_changed(tmp_path):
    assert module._source(tmp_path) == ("", False)
    _git(tmp_path, "init", "-q")
    assert module._source(tmp_path) == ("", False)  # no commit yet
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-q", "-m", "first")
    assert module._source(tmp_path) == (_git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("two")
    assert module._source(tmp_path)[1] is True
    (tmp_path / "inside").mkdir()
    assert module._source(tmp_path / "inside") == ("", False)  # part of a checkout of something else


def test_a_command_line_that_is_not_utf8_is_escaped(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "caf\udce9"])
    assert environment()["command"] == r"python 'caf\udce9'"
