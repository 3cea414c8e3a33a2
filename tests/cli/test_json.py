"""`--format json`: one document on stdout with the numbers of the text, and the same exit codes."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest

from hpctrip.base.io import json_text
from hpctrip.record.show import summary


@pytest.fixture(scope="module")
def run(trained):
    return trained("stop.max_rounds=2")


def document(ended):
    """The JSON document on stdout; asserts that it is strict JSON and nothing else."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not valid JSON")

    return json.loads(ended.out, parse_constant=refuse)


def test_show_gives_the_numbers_of_the_summary(hpctrip, run):
    (shown,) = document(hpctrip("show", "--format", "json", run.path))["runs"]
    assert shown["path"] == str(run.path) and shown["status"] == "finished"
    assert shown["clock_s"] == run.rounds["clock_s"].iloc[-1]
    assert shown["num_rounds"] == 2 and shown["last_num_sites"] == run.rounds["num_sites"].iloc[-1]
    assert shown["params_digest"] == run.meta["params_digest"]
    assert shown["local_training"]["lr"] == 0.01
    assert shown["target_accuracy"] == 1  # never reached: unknown values are null
    assert shown["time_to_accuracy_s"] is shown["time_to_accuracy_round"] is None
    text = summary(run)
    assert f"{shown['last_accuracy']:.2%} last, {shown['best_accuracy']:.2%} best" == text["accuracy"]
    assert f"{shown['wall_s']:.1f} s: train {shown['train_wall_s']:.1f}" in text["wall time"]


def test_show_status_as_json_is_the_status_of_every_file(hpctrip, run):
    statuses = document(hpctrip("show", "--status", "--format", "json", run.path))
    assert statuses == {"runs": [{"path": str(run.path), "status": "finished"}]}


def test_bad_input_leaves_stdout_empty(hpctrip):
    ended = hpctrip("show", "--format", "json", "nowhere.h5")
    assert ended.code == 2 and ended.out == "" and "nowhere.h5" in ended.err


def test_verify_lists_sound_and_damaged_files(hpctrip, run, tmp_path):
    changed = shutil.copy(run.path, tmp_path / "changed.h5")
    with h5py.File(changed, "r+") as file:
        file["rounds/clock_s"][1] += 1
    ended = hpctrip("verify", "--format", "json", run.path, changed)
    assert ended.code == 2 and "/rounds does not match its checksum" in ended.err
    sound, wrong = document(ended)["files"]
    assert sound == {"ok": True, "path": str(run.path), "faults": [], "replayed": True, "not_replayed": ""}
    assert not wrong["ok"] and not wrong["replayed"]
    assert "does not match its checksum" in wrong["faults"][0]["problem"]
    assert set(wrong["faults"][0]) == {"place", "problem", "hint"}
    assert "fault(s)" in hpctrip("verify", changed).out
    ended = hpctrip("verify", "--no-replay", "--format", "json", run.path)
    (quick,) = document(ended)["files"]
    assert ended.code == 0 and quick == sound | {"replayed": False}


def test_diff_lists_both_values_and_sets_the_exit_code(hpctrip, run, trained):
    same = hpctrip("diff", "--format", "json", run.path, run.path)
    assert same.code == 0
    assert document(same) == {"a": str(run.path), "b": str(run.path), "equal": True, "differences": []}
    other = trained("stop.max_rounds=2", "timing.seconds_per_sample=0.03")
    ended = hpctrip("diff", "--format", "json", run.path, other.path)
    compared = document(ended)
    assert ended.code == 1 and not compared["equal"]
    first = compared["differences"][0]
    assert first == {"where": "input", "what": "timing.seconds_per_sample", "a": 0.02, "b": 0.03, "row": ""}
    (clock,) = (d for d in compared["differences"] if (d["where"], d["what"]) == ("round 1", "clock_s"))
    assert [clock["a"], clock["b"]] == [r.rounds["clock_s"].iloc[0] for r in (run, other)]
    lines = hpctrip("diff", run.path, other.path).out.splitlines()
    assert len(lines) == len(compared["differences"])
    assert lines[0] == "input: timing.seconds_per_sample: 0.02 | 0.03"


def test_diff_says_where_only_the_inputs_differ(hpctrip, run, trained):
    """Exit code 1, as documented: another input may come to other rounds later."""
    other = trained("stop.max_rounds=2", "stop.target_accuracy=0.97")
    ended = hpctrip("diff", run.path, other.path)
    assert ended.code == 1
    first, second = ended.out.splitlines()
    assert first == f"equal, though the inputs differ: 2 rounds, model digest {run.meta['params_digest']}"
    assert second.startswith("input: stop.target_accuracy: ")


def test_plan_gives_the_numbers_of_the_report(hpctrip, tiny):
    command = ("plan", tiny, "-n", 3, "--rounds", 2, "--samples-per-second", 100)
    ended = hpctrip(*command, "--format", "json")
    planned, text = document(ended), hpctrip(*command).out
    assert ended.code == 0 and planned["num_hosts"] == 2 and len(planned["rounds"]) == 2
    assert planned["train_samples_per_s"] == 100 and planned["evaluate_samples_per_s"] is None
    assert planned["wall_s"] == pytest.approx(sum(row["wall_s"] for row in planned["rounds"]))
    assert f"{planned['wall_s']:.1f} s for 2 rounds" in text
    for row in planned["rounds"]:
        assert f"{row['makespan_s']:.1f}" in text and f"{row['busiest_host_samples']} samples" in text
    assert sum(row["num_hosts"] for row in planned["placement"]) == 2
    assert text.count("\n! ") + text.startswith("! ") == len(planned["warnings"])


def test_numpy_numbers_are_numbers_and_non_finite_ones_null():
    arrays = {"b": [np.int64(3), np.nan], "c": np.array([1.0, np.inf])}
    value = {"a": np.float64(0.1), **arrays, "d": ("\x1b", True)}
    assert json.loads(json_text(value)) == {"a": 0.1, "b": [3, None], "c": [1, None], "d": ["\x1b", True]}
    assert json_text(value).isascii() and "\x1b" not in json_text(value)
