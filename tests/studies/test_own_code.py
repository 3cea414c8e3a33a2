"""Studies and sweeps of a model and of data that are code of the user's own, and of CSV files of sites and power."""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

import hpctrip as library
from hpctrip.runner.experiment import POLICIES
from hpctrip.studies.studies import Changes, sweep_study

ROOT = Path(library.__file__).parents[1]

CODE = '''
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpctrip.api import POLICIES, Decision, Policy


@POLICIES.add
class Nearest(Policy):
    """The nearest site."""

    kind = "nearest"
    word: str = ""
    reach: int = 1

    def select(self, sites, history, rng):
        return Decision(sites.distance_m.argsort()[:1])


def points():
    x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] > 0).long())


class Small(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Linear(8, num_classes))


class Wide(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, num_classes))
'''
INPUT = """
name = "mine"
workload = {kind = "arrays", data = "points.py:points", model = "points.py:Small"}
sites = {kind = "csv", path = "src/sites.csv"}
power = {kind = "csv", path = "src/power.csv"}
policy.kind = "nearest"
stop = {max_rounds = 2, target_accuracy = 1.0}
"""
STUDY = """
name = "st"
inputs = ["in.toml"]
seeds = [0]
[[axis]]
key = "workload.model"
values = ["points.py:Small", "points.py:Wide"]
"""


@pytest.fixture
def source(folder, monkeypatch):
    """The folder `src` of the working folder, with an input, a study, and the files that they name."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the processes of the runs
    source = folder / "src"
    source.mkdir()
    texts = {"points.py": CODE, "in.toml": INPUT, "st.toml": STUDY}
    texts["sites.csv"] = "name,rtt_ms,bandwidth_mbps\nBerlin,10,100\nRome,20,200\n"
    texts["power.csv"] = "time,Berlin_kw,Rome_kw\n2026-01-01T00:00Z,10,20\n2026-01-01T01:00Z,20,10\n"
    for name, text in texts.items():
        (source / name).write_text(text)
    return source


def finished(folder):
    """The runs of the table of a study, all finished."""
    rows = pd.read_csv(folder / "runs.csv")
    assert (rows["status"] == "finished").all(), rows
    return rows


def test_a_study_makes_its_runs_from_any_working_folder_and_knows_them_again(hpctrip, source, monkeypatch):
    out = source.parent / "results"
    assert (done := hpctrip("study", "src/st.toml", "--out", out)).code == 0, done.err
    rows = finished(out / "st")
    assert len(rows) == 2 and rows["params_digest"].nunique() == 2
    elsewhere = source.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "src").symlink_to(source)  # paths of data are relative to the working folder
    monkeypatch.chdir(elsewhere)
    listed = hpctrip("study", "status", "../src/st.toml", "--out", out)
    assert [line.split()[0] for line in listed.out.splitlines()[:-1]] == ["finished"] * 2, listed


def test_a_study_that_was_moved_keeps_its_runs_and_goes_on_with_them(hpctrip, source, monkeypatch):
    """Where code lies is no part of an identity; its content is, with that of the modules beside it."""
    (source / "acts.py").write_text("from torch.nn import ReLU as act")
    (source / "points.py").write_text(CODE.replace("nn.ReLU()", "act()") + "\nfrom acts import act\n")
    old = source.parent / "old"
    old.mkdir()
    source.rename(old / "src")
    monkeypatch.chdir(old)
    assert (done := hpctrip("study", "src/st.toml", "--out", "results")).code == 0, done.err
    new = old.rename(old.with_name("new"))
    monkeypatch.chdir(new)

    def listed():
        POLICIES.pop("nearest")  # of the file's other place: this is one process
        lines = hpctrip("study", "status", "src/st.toml", "--out", "results").out.splitlines()[:-1]
        return [line.split()[0] for line in lines]

    assert listed() == ["finished"] * 2
    first = hpctrip("run", "src/in.toml", "--out", "run.h5", "-o", "stop.max_rounds=1")
    assert first.code == 0, first.err
    monkeypatch.chdir(new.rename(new.with_name("newer")))
    POLICIES.pop("nearest")
    assert (more := hpctrip("run", "src/in.toml", "--out", "run.h5", "--resume")).code == 0, more.err
    Path("src/acts.py").write_text("from torch.nn import Tanh as act")
    assert listed() == ["stale"] * 2


def test_functions_of_one_file_are_two_runs(hpctrip, source):
    (source / "points.py").write_text(CODE + "\n\ndef fewer():\n    return TensorDataset(*points()[:100])\n")
    data = ("--sweep", "workload.data=src/points.py:points,src/points.py:fewer")
    assert (done := hpctrip("run", "src/in.toml", *data, "--out", "results")).code == 0, done.err
    assert finished(source.parent / "results/mine-sweep_workload.data")["params_digest"].nunique() == 2


def test_a_sweep_makes_its_runs_with_paths_of_the_command_line(hpctrip, source):
    models = ("--sweep", "workload.model=src/points.py:Small,src/points.py:Wide")
    for command in (("run", "src/in.toml"), ("study", "src/st.toml")):
        done = hpctrip(*command, *models, "--out", "results")
        assert done.code == 0, done.err
    assert "to make" not in done.out  # the sweep has made them
    finished(source.parent / "results/mine-sweep_workload.model")


def test_the_values_of_a_sweep_are_read_by_the_keys_of_a_plug_in(source):
    study = sweep_study(
        ["src/in.toml"], Path("out"), Changes(["policy.reach=1e1"], ["policy.word=1e5,007", "seed=1e0"])
    )
    policies = [entry.run_input.experiment.policy for entry in study.entries]
    assert [(policy.word, policy.reach) for policy in policies] == [("1e5", 10), ("007", 10)]
    assert [entry.name for entry in study.entries] == [
        f"policy.word = {word}, seed 1" for word in ("1e5", "007")
    ]


def test_python_makes_a_study_of_a_model_in_the_working_folder(source):
    (source.parent / "net.py").write_text(CODE.replace('"nearest"', '"other"'))
    swept = library.study("src/in.toml", {"workload.model": "net.py:Wide"}, sweeps={"seed": [0, 1]}, out="py")
    assert swept["status"].tolist() == ["finished"] * 2


def test_an_artifact_runs_in_a_copy_without_the_files_that_it_was_made_from(hpctrip, source, tmp_path):
    """The commands of its README, with a plug-in, a module beside it, a model, and files of sites and power."""
    (source / "acts.py").write_text("from torch.nn import ReLU as act")
    (source / "points.py").write_text(CODE.replace("nn.ReLU()", "act()") + "\nfrom acts import act\n")
    study = (
        "study",
        "src/st.toml",
        "-o",
        "workload.model=src/points.py:Wide",
        "--sweep",
        "train.lr=1e-2",
        "--out",
        "results",
    )
    assert hpctrip(*study).code == 0
    (done := hpctrip("study", "export", *study[1:], "made")).out == "artifact: made, 1 of 1 runs\n", done.err
    artifact = (tmp_path / "made").rename(tmp_path / "copy")
    axes = tomllib.loads((artifact / "study.toml").read_text())["axis"]
    assert [axis["values"] for axis in axes] == [["points.py:Wide"], [0.01]]
    source.rename(tmp_path / "away")
    (run_input,) = (artifact / "inputs").glob("*.toml")
    assert str(tmp_path) not in run_input.read_text() + (artifact / "study.toml").read_text()
    text = (artifact / "README.md").read_text().replace("IDENTITY", run_input.stem)
    commands = [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith("    ")]
    assert [command[0] for command in commands] == ["sha256sum", "python", "python"]
    for command in commands:
        words = [sys.executable if word == "python" else word for word in command]
        ended = subprocess.run(words, cwd=artifact, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
