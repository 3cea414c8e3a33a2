"""What hpctrip 0.3.0 wrote is read, or refused in one line with the way out. make.sh tells how it was made."""

import subprocess
from pathlib import Path

import pandas as pd
import pytest

from hpctrip.record.reader import open_run
from hpctrip.sim.power.csv import CsvPower

ARCHIVE = Path(__file__).with_name("hpctrip_0.3.0.tar.gz")
LONGER = ("-o", 'interrupt.job_s="1 d"')
"""The interrupted runs had a second."""
ADDED = {"link_free_s", "start_s", "age", "weight", "local_work", "queue_s", "uplink_free_s"}
"""Columns that 0.3.0 did not have."""


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A working folder with the files of 0.3.0."""
    subprocess.run(["tar", "-xzf", ARCHIVE, "-C", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "show finished.h5 stopped_run.h5 stopped_own_model.h5 stopped_loop.h5 cluster.h5",
        "verify finished.h5 stopped_run.h5 --data .",
        "verify stopped_own_model.h5 --plugin net.py",
        "verify cluster.h5",
        "watch finished.h5",
        "merge merged.h5 finished.h5 stopped_loop.h5",
        "plot curves finished.h5 stopped_loop.h5 --out curves.png",
        "plot timeline finished.h5 --out timeline.png",
        "retime finished.h5 -o network.round_trip=true --out retimed.h5",
        "check run.toml",
        "check own_model.toml",
        "plan run.toml",
        "study import study.toml out/two/ledger.csv --out elsewhere",
    ],
)
def test_what_it_wrote_is_read(old, hpctrip, command):
    ended = hpctrip(*command.split())
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("command", "fragments"),
    [
        ("run loop.toml", ["engine.name = 'loop': must be 'auto', 'sequential' or 'stacked'"]),
        ("check run.toml no_unit.toml", ["carbon.value_column = 'value'", "set carbon.unit to"]),
        ("resume stopped_loop.h5", ["stopped_loop.h5.ckpt0", "engine.name = 'loop'", "or make the run anew"]),
        (
            "retime stopped_loop.h5 -o engine.name=sequential --out retimed.h5",
            ["stopped_loop.h5: is of another hpctrip", "or make the run anew"],
        ),
        ("resume stopped_own_model.h5", ["'net.py'", "--plugin PATH"]),
        ("study --list", ["--list", "hpctrip study status NAME"]),
        (
            "study import study.toml swept/old-sweep_seed/ledger.csv",
            ["none of its 2 finished rows is a run of this study"],
        ),
    ],
)
def test_what_is_no_longer_read_is_refused_with_the_way_out(old, hpctrip, files_in, command, fragments):
    before = files_in(old)
    hpctrip(*command.split()).check_refused(fragments)
    assert files_in(old) == before


@pytest.mark.parametrize(("run", "plugin"), [("run", ()), ("own_model", ("--plugin", "net.py"))])
def test_an_interrupted_run_goes_on_as_a_new_one_does(old, hpctrip, run, plugin):
    recorded = open_run(f"stopped_{run}.h5").rounds
    assert len(recorded) == 1
    resumed = hpctrip("resume", f"stopped_{run}.h5", *plugin, *LONGER)
    assert resumed.code == 0 and "resuming after round 1" in resumed.out, resumed.err
    assert hpctrip("run", f"{run}.toml", "--out", "anew.h5").code == 0
    after, anew = open_run(f"stopped_{run}.h5"), open_run("anew.h5")
    simulated = ["clock_s", "num_sites", "num_samples", "energy_j", "carbon_g", "num_arrived"]
    pd.testing.assert_frame_equal(after.rounds[simulated], anew.rounds[simulated])
    known = [name for name in recorded if name not in recorded.attrs["added"]]
    pd.testing.assert_frame_equal(after.rounds[known].head(1), recorded[known], check_dtype=False)
    verified = hpctrip("verify", f"stopped_{run}.h5", "--data", ".", *plugin)
    assert verified.out == f"stopped_{run}.h5: ok\n" and verified.code == 0


def test_equal_runs_of_both_versions_have_no_difference_but_digits_of_the_machine(old, hpctrip):
    assert hpctrip("run", "run.toml", "--out", "new.h5").code == 0
    differences = hpctrip("diff", "finished.h5", "new.h5")  # other processors may differ in last bits
    assert not [line for line in differences.out.splitlines() if line.startswith(("input", "read", "sites"))]
    assert hpctrip("run", "run.toml", "-o", 'power.longest_gap_s="3 h"', "--out", "gap.h5").code == 0
    differences = hpctrip("diff", "finished.h5", "gap.h5")
    assert "input: power.longest_gap_s: absent | 10800.0" in differences.out
    drawn = hpctrip("plot", "curves", "finished.h5", "gap.h5", "--out", "gap.png")
    assert drawn.code == 0 and "longest_gap_s" in drawn.out
    assert hpctrip("cluster", "cluster.toml", "--out", "new_cluster.h5").code == 0
    assert hpctrip("diff", "cluster.h5", "new_cluster.h5").out == "equal: 4 jobs, 63 intervals\n"


def test_its_tables_are_exported_as_it_did(old, hpctrip):
    assert hpctrip("export", "finished.h5", "again").code == 0
    for path in (old / "exported").glob("*.csv"):
        before, after = pd.read_csv(path), pd.read_csv(old / "again" / path.name)
        assert {*after} - {*before} <= ADDED
        pd.testing.assert_frame_equal(after[[*before]], before)


def test_runs_of_a_study_are_kept_and_those_of_other_rules_are_named(old, hpctrip, monkeypatch):
    listed = hpctrip("study", "status", "study.toml", "--out", "out")
    assert "4 runs: 4 finished" in listed.out and listed.code == 0
    made = hpctrip("study", "tables", "study.toml", "--out", "out")
    assert made.code == 0 and "PowerTrip" in made.out and (old / "out/two/figures/curves.png").exists()
    latex = hpctrip("study", "tables", "study.toml", "--out", "out", "--format", "latex").out
    assert "& energy kWh & CO2 kg & cost " in latex
    for _ in range(2):  # the second time by a ledger of today
        swept = hpctrip("study", "status", "study.toml", "--out", "swept")
        assert "4 runs: 4 planned" in swept.out
    (old / "stale.toml").write_text('name = "old-sweep_seed"\ninputs = ["run.toml"]\nseeds = [0, 1]\n')
    assert "2 runs: 2 finished" in hpctrip("study", "status", "stale.toml", "--out", "swept").out
    monkeypatch.setattr(CsvPower, "rules", 2)  # as if its times were numbers
    table = (old / "swept/old-sweep_seed/table.csv").read_text()
    refused = hpctrip("study", "tables", "stale.toml", "--out", "swept")
    refused.check_refused(["has no finished run", "hpctrip study status stale.toml --out swept"])
    assert (old / "swept/old-sweep_seed/table.csv").read_text() == table
    for _ in range(2):  # the second time by the ledger that `tables` wrote
        stale = hpctrip("study", "status", "stale.toml", "--out", "swept").out
        why = "rules '1, sites 2, carbon 2, faults 2', now 1, sites 2, power 2, carbon 2, faults 2"
        assert stale.count(f"finished before by other rules ({why})") == 2 and "2 runs: 2 stale" in stale
    assert hpctrip("study", "run", "stale.toml", "--out", "swept").code == 0
