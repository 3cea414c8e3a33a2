"""hpctrip from Python, as a notebook uses it: light to import, again and again, with errors instead of exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import torch

import hpctrip
from hpctrip.record.diff import diff

SMALL = {
    "sites.num_sites": 6,
    "workload.train_samples": 120,
    "workload.test_samples": 100,
    "stop.target_accuracy": 1.0,
    "stop.max_rounds": 2,
    "checkpoint.every_rounds": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return hpctrip.run(overrides=SMALL, out=tmp_path_factory.mktemp("library") / "run.h5", quiet=True)


def test_importing_it_loads_nothing_heavy():
    heavy = {"torch", "pandas", "h5py", "mpi4py", "matplotlib"}
    look = f"import hpctrip, sys; dir(hpctrip); print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_run_gives_frames_attributes_and_the_values_in_force(run):
    assert isinstance(run.rounds, pd.DataFrame) and run.rounds["round"].tolist() == [1, 2]
    assert run.meta["status"] == "finished" and run.input["sites"]["num_sites"] == 6
    assert len(run.sites) == 6 and np.isfinite(run.rounds["clock_s"]).all()


def test_it_is_the_run_of_the_command_line(run, tmp_path):
    path = tmp_path / "same.h5"
    lines = [word for key, value in SMALL.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(
        [sys.executable, "-m", "hpctrip", *lines, "--out", str(path)], check=True, capture_output=True
    )
    assert diff(run, hpctrip.open(path)) == []


def test_again_and_again_in_one_process_and_nothing_of_it_stays(tmp_path, capfd):
    torch.set_num_threads(2)
    before = torch.get_num_threads(), threading.active_count(), signal.getsignal(signal.SIGINT)
    runs = [
        hpctrip.run(overrides=SMALL | {"seed": seed}, out=tmp_path / f"{seed}.h5", quiet=True)
        for seed in (1, 2)
    ]
    assert runs[0].meta["params_digest"] != runs[1].meta["params_digest"]
    assert (torch.get_num_threads(), threading.active_count(), signal.getsignal(signal.SIGINT)) == before
    torch.set_num_threads(1)
    assert capfd.readouterr().out == ""
    assert not list(tmp_path.glob("*.lock"))


def test_going_on_with_more_rounds(run):
    more = hpctrip.resume(
        run.path, overrides={"stop.max_rounds": 3}, out=run.path.with_name("more.h5"), quiet=True
    )
    assert len(more.rounds) == 3
    same = hpctrip.run(overrides=SMALL, out=run.path, resume=True, quiet=True)
    assert same.meta["params_digest"] == run.meta["params_digest"]


def test_values_of_every_sort_reach_the_input(tmp_path):
    values = SMALL | {
        "stop.max_rounds": np.int64(1),
        "label": 'a "quoted" ü',
        "policy": {"kind": "static", "k": 2},
        "interrupt.signals": ["SIGUSR1"],
        "stop.target_accuracy": None,
    }
    run = hpctrip.run(overrides=values, out=tmp_path / "run.h5", quiet=True)
    assert run.input["label"] == 'a "quoted" ü' and run.input["policy"]["k"] == 2
    assert run.input["interrupt"]["signals"] == ["SIGUSR1"] and len(run.rounds) == 1


def test_bad_input_is_an_error_that_says_all(tmp_path):
    with pytest.raises(hpctrip.InputError, match=r"policy\.k"):
        hpctrip.run(overrides={"policy.kind": "static", "policy.k": -1}, out=tmp_path / "run.h5")
    with pytest.raises(hpctrip.InputError, match="seed: a object is no value"):
        hpctrip.run(overrides={"seed": object()}, out=tmp_path / "run.h5")
    with pytest.raises(hpctrip.InputError, match="no such file"):
        hpctrip.open(tmp_path / "none.h5")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = hpctrip.nonsense
    assert os.listdir(tmp_path) == []


def test_a_notebook_shows_the_summary_and_pictures(run):
    assert repr(run) == f"<Run {run.path}: demo, finished, 2 rounds>"
    page = run._repr_html_()
    assert page.startswith("<pre") and "rounds" in page and run.meta["params_digest"][:8] in page
    for name in ("summary", "stragglers", "curves"):
        assert run.plot(name)._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(hpctrip.InputError, match="did you mean"):
        hpctrip.plot("curvs", run)
    with pytest.raises(hpctrip.InputError, match="drawn of one run, not of 2"):
        hpctrip.plot("summary", [run, run])


def test_a_notebook_shows_a_run_once(run, monkeypatch):
    """In Jupyter rich's consoles display what they print, also those that only record."""
    displayed = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *shown: displayed.append(shown))
    assert run._repr_html_() and not displayed
