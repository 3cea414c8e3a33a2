"""`calibrate` on a world of a few sites: what it finds, that it finds it again for nothing, and what it refuses."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from small_study import BASE

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
    assert fitted.ended.returncode == 0, fitted.ended.stderr
    sizes = pd.read_csv(fitted.folder / "out/calibration-tiny/sizes/ledger.csv").set_index("run")
    reached = {run: row["accuracy"] for run, row in sizes.iterrows()}
    found = json.loads((fitted.folder / "out/calibration-tiny/calibration.json").read_text())
    assert found["best"]["target_accuracy"] <= min(reached.values())
    assert f"target accuracy {found['best']['target_accuracy']:.1%}" in fitted.ended.stdout
