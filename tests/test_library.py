"""hpctrip from Python, as a notebook uses it: light to import, again and again, with errors instead of exits."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest
import torch

import hpctrip
from hpctrip import library
from hpctrip.learn.engines.steps import allow_tf32, be_deterministic
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


def test_it_is_the_run_of_the_command_line(run, tmp_path, request):
    path = tmp_path / "same.h5"
    lines = [word for key, value in SMALL.items() for word in ("-o", f"{key}={value}")]
    assert (
        request.getfixturevalue("hpctrip")(*lines, "--out", path).code == 0
    )  # `hpctrip` is the library here
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


@pytest.fixture
def precision():
    """`precision(name)`: the setting of a backend, which is put back after the test."""
    backends = {"matmul": torch.backends.cuda.matmul, "cudnn": torch.backends.cudnn}
    before = {name: backend.allow_tf32 for name, backend in backends.items()}
    yield backends
    for name, value in before.items():
        backends[name].allow_tf32 = value


def test_a_run_leaves_generators_precision_and_determinism_as_the_caller_has_set_them(
    tmp_path, precision, monkeypatch
):
    def drawn():
        return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()

    def settings():
        tf32 = [backend.allow_tf32 for backend in precision.values()]
        filling = torch.utils.deterministic.fill_uninitialized_memory
        return tf32, torch.get_deterministic_debug_mode(), filling, np.geterr()["under"]

    def launch(begin, quiet):
        be_deterministic()
        allow_tf32("float32")
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        return original(begin, quiet=quiet)

    original = library.launch
    monkeypatch.setattr(library, "launch", launch)
    for backend in precision.values():
        backend.allow_tf32 = True
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with np.errstate(all="raise"):
        expected, before = [drawn() for _ in range(2)], settings()
        torch.manual_seed(1), np.random.seed(1), random.seed(1)
        again = []
        for number in range(2):
            again.append(drawn())
            hpctrip.run(overrides=SMALL, out=tmp_path / f"{number}.h5", quiet=True)
        assert again == expected and settings() == before
    torch.use_deterministic_algorithms(False)


def test_threads_may_call_it_and_get_the_same_runs_one_after_another(run, tmp_path):
    done, stopped = {}, tmp_path / "stopped.h5"

    def call(name, function, *arguments, **overrides):
        try:
            out = tmp_path / f"{name}.h5"
            done[name] = function(*arguments, overrides=SMALL | overrides, out=out, quiet=True)
        except hpctrip.InterruptedRun as error:
            done[name] = str(error)

    calls = [
        threading.Thread(target=call, args=args, kwargs=overrides)
        for args, overrides in (
            (("same", hpctrip.run), {}),
            (("other", hpctrip.run), {"seed": 1}),
            (("more", hpctrip.resume, run.path), {"stop.max_rounds": 3}),
            (("stopped", hpctrip.run), {"stop.max_rounds": 100_000}),
        )
    ]
    for thread in calls:
        thread.start()
    while not stopped.exists():
        assert calls[-1].is_alive()
        time.sleep(0.01)
    stopped.with_name("stopped.h5.stop").touch()
    for thread in calls:
        thread.join()
    same, other = (done[name].meta["params_digest"] for name in ("same", "other"))
    assert same == run.meta["params_digest"] != other
    assert len(done["more"].rounds) == 3 and "stop file" in done["stopped"]


def test_an_accuracy_in_percent_is_refused(run):
    with pytest.raises(hpctrip.InputError, match=r"accuracy = 40: is not from 0 to 1; write 0\.4 for 40 %"):
        run.time_to(40)


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
    with pytest.raises(hpctrip.InputError, match="seed: a object is not a value"):
        hpctrip.run(overrides={"seed": object()}, out=tmp_path / "run.h5")
    with pytest.raises(hpctrip.InputError, match="no such file"):
        hpctrip.open(tmp_path / "none.h5")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = hpctrip.nonsense
    assert os.listdir(tmp_path) == []


def test_a_study_is_a_tidy_frame_with_a_row_for_each_run_and_is_made_once(tmp_path, capfd):
    fixed = SMALL | {"policy.kind": "static"}
    grid = {"overrides": fixed, "sweeps": {"policy.k": [2, 3], "seed": range(2)}}
    runs = hpctrip.study(**grid, out=tmp_path, jobs=2, quiet=True)
    assert capfd.readouterr().out == ""
    assert runs["seed"].tolist() == [0, 1, 0, 1] and set(runs["status"]) == {"finished"}
    assert runs["input.policy.k"].tolist() == [2, 2, 3, 3]
    assert runs["num_rounds"].tolist() == [2] * 4 and runs["clock_s"].gt(0).all()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.h5")}
    pd.testing.assert_frame_equal(hpctrip.study(**grid, out=tmp_path, quiet=True), runs)
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.h5")}
    labels = hpctrip.plot("curves", runs["path"]).table["label"]
    assert set(labels.str.strip()) == {"static k = 2", "static k = 3"}
    with pytest.raises(hpctrip.InputError, match="no such study file"):
        hpctrip.study("fig99", out=tmp_path)
    with pytest.raises(hpctrip.InputError, match="names 0 study files; name one, or give sweeps"):
        hpctrip.study(out=tmp_path)


@pytest.mark.parametrize(
    "call", [hpctrip.run, lambda: hpctrip.resume("run.h5"), lambda: hpctrip.study("fig09")]
)
def test_a_script_that_expects_a_run_on_every_rank_is_refused_under_a_launcher(call, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    with pytest.raises(hpctrip.InputError, match="was started 3 times by a launcher"):
        call()


def test_a_notebook_shows_the_summary_and_pictures(run):
    assert repr(run) == f"<Run {run.path}: demo, finished, 2 rounds>"
    page = run._repr_html_()
    assert page.startswith("<pre") and "rounds" in page and run.meta["params_digest"][:8] in page
    for name in ("summary", "sites", "curves"):
        assert run.plot(name)._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(hpctrip.InputError, match="did you mean"):
        hpctrip.plot("curvs", run)
    with pytest.raises(hpctrip.InputError, match="drawn of one run, not of 2"):
        hpctrip.plot("summary", [run, run])


def test_a_figure_is_drawn_of_a_path_too(run):
    assert hpctrip.plot("curves", run.path).table.equals(hpctrip.plot("curves", run).table)


@pytest.mark.parametrize(
    ("figure", "runs", "options", "problem"),
    [
        ("curves", 0, {}, "is drawn of runs, not of 0"),
        ("summary", 2, {}, "is drawn of one run, not of 2"),
        ("curves", 1, {"tarqet": 0.4}, "has no option 'tarqet'; did you mean 'target'?"),
        ("curves", 1, {"target": 40}, "'40' is not a fraction"),
        ("curves", 1, {"width": 0}, "0.0 is not in the range"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_bad_input(figure, runs, options, problem, run):
    with pytest.raises(hpctrip.InputError, match=re.escape(problem)):
        hpctrip.plot(figure, [run] * runs, **options)


def test_errors_name_arguments_and_no_options(run, tmp_path):
    with pytest.raises(hpctrip.InputError, match=r"or overwrite=True$"):
        hpctrip.run(overrides=SMALL, out=run.path)
    (tmp_path / "notes.png").write_text("mine")
    with pytest.raises(hpctrip.InputError, match=r"or overwrite=True$"):
        run.plot().save(tmp_path / "notes.png")


def test_a_quiet_run_tells_its_progress_to_the_logger(tmp_path, capfd, caplog):
    with caplog.at_level("INFO", "hpctrip"):
        hpctrip.run(overrides=SMALL | {"stop.max_rounds": 1}, out=tmp_path / "quiet.h5", quiet=True)
    assert any(line.startswith("round    1") for line in caplog.messages)
    assert caplog.messages[-1] == f"results: {tmp_path / 'quiet.h5'}" and capfd.readouterr().out == ""


def test_tables_in_place_of_files_are_refused_with_the_hint():
    with pytest.raises(hpctrip.InputError, match=r"is a dict.*overrides="):
        hpctrip.run({"workload": {"kind": "emnist"}})


def test_one_value_of_a_sweep_needs_no_list(tmp_path):
    runs = hpctrip.study(overrides=SMALL, sweeps={"seed": 3}, out=tmp_path, quiet=True)
    assert runs["seed"].tolist() == [3]
