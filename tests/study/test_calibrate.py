"""`calibrate` on a world of a few sites: what it finds, that it finds it again for nothing, and what it refuses."""

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from small_study import BASE

from hpctrip.base.shipped import CALIBRATIONS
from hpctrip.study.calibrate.forms import overlay
from hpctrip.study.calibrate.runs import Runs
from hpctrip.study.claims.paper import CENTRAL_50, FIG09_HOURS, POWERTRIP
from hpctrip.study.studies import Asked, found_file

CALIBRATION = """
name = "tiny"
title = "Two constants, three bars"
seeds = [4, 5]
common.stop.max_rounds = 4

[[constant]]
key = "timing.clock"
values = ["straggler", "aggregate-throughput"]

[[constant]]
key = "network.near_bandwidth_bps"
values = ["100 Mbit/s", "1 Gbit/s", "50 Gbit/s"]

[sweep]
inputs = ["base.toml"]
values = [1, 5]

[[bar]]
label = "PowerTrip"
inputs = ["base.toml"]
policy.kind = "powertrip"
hours = 0.02
dynamic = true

[[bar]]
label = "static"
inputs = ["base.toml"]
policy.k = 4
hours = 0.05

[[bar]]
label = "random"
inputs = ["base.toml"]
policy.kind = "random"
policy.k = 4
hours = 0.05
"""


@pytest.fixture(scope="module")
def fitted(hpctrip, tmp_path_factory):
    """`folder` with the calibration file and out/; `ended`: how the command ended; `again`: the command once more."""
    folder = tmp_path_factory.mktemp("calibration")
    (folder / "base.toml").write_text(BASE)
    (folder / "tiny.toml").write_text(CALIBRATION)
    words = ("calibrate", folder / "tiny.toml", "--out", folder / "out", "--jobs", "1")
    ended = hpctrip(*words)
    return SimpleNamespace(folder=folder, ended=ended, again=lambda *more: hpctrip(*words, *more))


def test_the_target_is_the_lowest_accuracy_that_any_size_reaches(fitted):
    assert fitted.ended.code == 0, fitted.ended.err
    sizes = pd.read_csv(fitted.folder / "out/calibration-tiny/sizes/ledger.csv").set_index("run")
    reached = {run: row["accuracy"] for run, row in sizes.iterrows()}
    found = json.loads((fitted.folder / "out/calibration-tiny/calibration.json").read_text())
    assert set(reached) == {f"k = {k}, seed {seed}" for k in (1, 5) for seed in (4, 5)}
    assert found["best"]["target_accuracy"] == min(reached.values())
    assert f"target accuracy {found['best']['target_accuracy']:.1%}" in fitted.ended.out


def test_hours_by_the_arithmetic_of_the_clock_are_those_of_the_run_that_was_made(fitted):
    """PowerTrip was trained with the constants of the inputs: what the fit says of that point is what its runs say."""
    out = fitted.folder / "out/calibration-tiny"
    made = pd.read_csv(out / "points/ledger.csv")
    hours = (made["clock_s"].prod() ** (1 / len(made))) / 3600
    found = json.loads((out / "calibration.json").read_text())["as_the_inputs_are"]
    assert found["hours"]["PowerTrip"] == pytest.approx(hours, rel=1e-12)


def test_every_point_is_told_and_what_was_not_trained_has_a_bound(fitted):
    points = pd.read_csv(fitted.folder / "out/calibration-tiny/points.csv")
    assert len(points) == 6 and (points["error"].diff()[1:] >= 0).all()
    known = points["PowerTrip h"].notna()
    assert known.any() and points.loc[known, "static h"].notna().all()
    assert set(points.loc[~known, "is"]) <= {"at least"}


def test_the_fit_is_an_input_that_can_be_laid_over_others(fitted, hpctrip):
    written = fitted.folder / "out/calibration-tiny/tiny.toml"
    tables = tomllib.loads(written.read_text())
    best = json.loads((fitted.folder / "out/calibration-tiny/calibration.json").read_text())["best"]
    assert tables["timing"]["clock"] == best["constants"]["timing.clock"]
    assert tables["stop"]["target_accuracy"] == best["target_accuracy"]
    assert hpctrip("check", fitted.folder / "base.toml", written, "-o", "policy.k=2").code == 0


def test_the_same_command_again_makes_nothing_and_finds_the_same(fitted):
    folder = fitted.folder / "out/calibration-tiny"
    before = {file.name: file.read_text() for file in folder.glob("*.csv")}
    again = fitted.again("--format", "json")
    assert again.code == 0 and "to make" not in again.out
    assert {file.name: file.read_text() for file in folder.glob("*.csv")} == before
    assert json.loads(again.out) == json.loads((folder / "calibration.json").read_text())


def read(folder, text, *overrides):
    """A calibration of these bars, before anything is trained."""
    (folder / "base.toml").write_text(BASE)
    (folder / "own.toml").write_text(text)
    return Runs.read(str(folder / "own.toml"), Asked(folder / "out", overrides))


def test_all_bars_may_follow_the_constants(tmp_path):
    runs = read(tmp_path, CALIBRATION.replace("hours = 0.05", "hours = 0.05\ndynamic = true"))
    assert runs.fixed_bars(dict.fromkeys(runs.worlds, 0.4)) == {world: [] for world in runs.worlds}
    assert len(runs.at_point(runs.default, 0.4)) == 3 * 2


def test_where_no_bar_is_said_to_follow_them_each_point_is_looked_at_once(tmp_path, hpctrip):
    read(tmp_path, CALIBRATION.replace("dynamic = true\n", ""))
    ended = hpctrip(
        "calibrate", tmp_path / "own.toml", "--out", tmp_path / "out", "--jobs", "1", "--points", "9"
    )
    assert ended.code == 0, ended.err
    points = pd.read_csv(tmp_path / "out/calibration-tiny/points.csv")
    assert (
        0 < points["PowerTrip h"].notna().sum() < 6
    )  # its cohorts follow them, though the file does not say so


def test_the_fit_holds_for_the_samples_that_were_trained(tmp_path):
    runs = read(
        tmp_path, CALIBRATION + "\n[common.workload]\ntrain_samples = 60\n", "workload.train_samples=40"
    )
    point = SimpleNamespace(values=runs.default, target=0.4, bars="0.1")
    found = SimpleNamespace(best=point, default=point, runs=runs)
    laid_over = tomllib.loads(overlay(SimpleNamespace(found=found, again="x", labels=["PowerTrip"])))
    assert laid_over["workload"]["train_samples"] == 40


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("timing.clock", "timing.clok"), "timing.clok"),
        (('["straggler"', '["slow"'), "timing.clock"),
        (('key = "timing.clock"', 'key = "stop.target_accuracy"'), "cannot be fitted"),
        (('label = "random"', 'label = "static"'), "bar: two have the same name"),
        (("hours = 0.02", "hours = 0"), "tiny.toml: bar.0.hours"),
        (("values = [1, 5]", "values = [1, 500]"), "there are only 6 sites"),
        (("seeds = [4, 5]", "seeds = []"), "seeds"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_trained(hpctrip, tmp_path, change, said):
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "tiny.toml").write_text(CALIBRATION.replace(*change))
    ended = hpctrip("calibrate", tmp_path / "tiny.toml", "--out", tmp_path / "out")
    assert ended.code == 2 and said in ended.err
    assert not (tmp_path / "out").exists()


def test_constants_without_end_are_refused_before_they_are_combined(hpctrip, tmp_path):
    """A hundred million points would not fit the memory."""
    (tmp_path / "base.toml").write_text(BASE)
    constant = '[[constant]]\nkey = "{}"\nvalues = {}\n'
    keys = ("timing.clock", "network.near_bandwidth_bps", "train.lr", "partition.alpha")
    head, bars = CALIBRATION.split("[[constant]]")[0], "[sweep]" + CALIBRATION.split("[sweep]")[1]
    more = "".join(f'[[bar]]\nlabel = "{i}"\ninputs = ["base.toml"]\nhours = 1\n' for i in range(4))
    text = head + "".join(constant.format(key, [*range(100)]) for key in keys) + bars + more
    (tmp_path / "tiny.toml").write_text(text)
    ended = hpctrip("calibrate", tmp_path / "tiny.toml", "--out", tmp_path / "out")
    ended.check_refused(["constant: has 100000000 combinations of values, 10,000 are the most"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("small", "points"), [(False, 432), (True, 18)])
def test_the_calibration_that_comes_with_hpctrip_has_the_bars_that_the_claims_have(small, points):
    runs = Runs.read(found_file("fig09", CALIBRATIONS, "calibration"), Asked(Path(), small=small))
    assert {bar.label: bar.hours for bar in runs.file.bar} == FIG09_HOURS | {
        CENTRAL_50: FIG09_HOURS[POWERTRIP]
    }
    assert len(runs.points) == points and runs.default in runs.points
    assert [runs.keys[place] for place in runs.learned] == ["partition.alpha"]
    at_default = runs.at_point(runs.default, 0.4)
    assert {entry.given.experiment.policy.kind for entry in at_default} == {"powertrip", "highest-power"}
