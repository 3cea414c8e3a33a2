"""The one command for a GPU works before there is one: its dry run, and what it makes of parts that end badly."""

import csv
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.params import flatten

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DAY = BENCHMARKS / "gpu_day.py"


@pytest.fixture
def benchmarks(monkeypatch):
    """Their modules can be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def command(benchmarks, monkeypatch):
    """The names of the command's file."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(DAY))


def table(folder):
    with open(folder / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_part_that_fails_crashes_or_hangs_ends_alone(launch, tmp_path):
    ended = launch(0, tmp_path, script=Path(__file__).with_name("gpu_parts.py"))
    endings = dict(line.split(" | ") for line in ended.out.splitlines() if " | " in line)
    assert re.fullmatch(r"left out: it takes about 30 s, \d+ s are left", endings.pop("late 30"))
    assert endings == {
        "broken": "failed: ValueError: this shape is none",
        "crashing": "crashed: killed by SIGABRT",
        "leaving": "crashed: exit code 3",
        "hanging": "stopped: not through after 2 s",
        "good": "done",
        "late 0.1": "done",
    }
    rows = table(tmp_path)
    told = {row["metric"]: row for row in rows}
    assert {"told_before_the_error", "told_before_the_crash"} <= told.keys()
    assert [(row["value"], row["bound"], row["met"]) for row in rows if row["metric"] == "told"] == [
        ("1.0", "<= 2", "yes"),
        ("4.0", "<= 2", "no"),
    ]
    child = Path(f"/proc/{float(told['child']['value']):.0f}/cmdline")
    assert not child.exists() or not child.read_text(), "what the hanging part had started lives on"
    assert "ValueError: this shape is none" in (tmp_path / "log.txt").read_text()


@pytest.mark.timeout(960)  # it takes one to three minutes, on a busy machine more than five
def test_the_dry_run_is_green(command, launch, tmp_path):
    """One part of every kind, of the light shape where there is one: the others differ from these in their shape and
    its numbers alone."""
    parts = sorted(reversed(command["PARTS"]), key=lambda part: "W1s" in part.name)
    names = set({part.function: part.name for part in parts}.values())
    given = ("--device", "cpu", "--small", "--minutes", 15, "--out", tmp_path, "--only", ",".join(names))
    ended = launch(0, *given, script=DAY, timeout=930)
    assert ended.code == 0, ended.out + (tmp_path / "log.txt").read_text()
    rows = table(tmp_path)
    endings = {row["part"]: row["note"] for row in rows if row["metric"] == "part_wall_s"}
    assert set(endings.values()) == {"done"}
    left_out = [line for line in ended.out.splitlines() if ": left out: no " in line]
    assert len(endings) + len(left_out) == len(names), ended.out
    assert {row["part"] for row in rows if row["metric"] != "part_wall_s"} == endings.keys()
    assert "a dry run: targets are those of a GPU" in (tmp_path / "results.txt").read_text()


@pytest.mark.parametrize("name", ["W1", "W1s", "W2", "W4", "FLUTE", "KWT-1", "LoRA"])
def test_every_shape_has_data_that_its_model_learns_from(benchmarks, name):
    from shapes import SHAPES, sites_of

    if name == "LoRA":
        pytest.importorskip("peft")
    draw, shape = np.random.default_rng(0), SHAPES[name]
    task, (site, _) = shape.task(4, draw), sites_of(2, 2, draw)
    torch.manual_seed(0)
    (update,) = Sequential(task, shape.work).train(flatten(task.build_model()), [site])
    assert update.usable and update.magnitude > 0 and update.train_loss > 0


def test_the_help_names_every_part_what_it_takes_and_what_it_needs(command, capsys):
    with pytest.raises(SystemExit):
        command["main"](["--help"])
    told = capsys.readouterr().out
    for part in command["PARTS"]:
        assert f"{part.name:16} {part.seconds:4.0f} s" in told
        assert all(name in told for name in (*part.needs, *part.needs_gpu, *part.programs))


def test_a_part_whose_package_is_not_there_is_left_out_by_name(command, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    command["main"](["--list", "--only", "qlora,energy", "--device", "cuda"])
    qlora, energy = capsys.readouterr().out.splitlines()
    assert energy.lstrip().startswith("energy ") and qlora.endswith("no module bitsandbytes")


def test_an_unknown_part_is_refused(command):
    with pytest.raises(SystemExit, match="--only sped: the parts are machine, "):
        command["main"](["--only", "sped"])


def test_targets_are_judged_by_the_best_block_and_the_winner_is_named(benchmarks):
    from gpu.rows import Row
    from gpu.targets import targets, winners

    def row(metric, value, contender, block="", shape="W1s", sites=100):
        return Row(metric, value, "speed", shape, sites, contender, block, "float32", device="cuda", n=7)

    rows = [
        row("times_plain", 12.0, "stacked", 8),
        row("times_plain", 25.0, "stacked", 64),
        row("times_plain", 99.0, "stacked", 64, sites=20),
        row("times_plain", 9.0, "stacked", 64, "W1"),
        row("round_s", 0.2, "hpctrip stacked", "", "FLUTE", 10),
        row("times_ours", 11.0, "pfl", "", "FLUTE", 10),
        row("train_samples_per_s", 1e5, "stacked", 8),
        row("train_samples_per_s", 2e5, "stacked", 64),
        row("train_samples_per_s", 9e5, "plain"),
    ]
    judged = [(r.metric, r.shape, r.value, r.bound, r.met) for r in targets(rows)]
    assert judged == [
        ("times_plain", "W1s", 25.0, ">= 20", "yes"),
        ("times_plain", "W1", 9.0, ">= 10", "no"),
        ("round_s", "FLUTE", 0.2, "<= 0.1", "no"),
        ("times_ours", "FLUTE", 11.0, ">= 10", "yes"),
    ]
    assert [(r.shape, r.contender, r.block) for r in winners(rows)] == [("W1s", "stacked", 64)]
