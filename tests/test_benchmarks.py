"""The benchmarks still run, in their smallest form; what they measure is not looked at."""

import json
import re
import runpy
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from hpctrip.studies.file import parse_range

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_selection_times_every_policy(script):
    ended = script(BENCHMARKS / "selection.py", "--repeats", 1, "--share", 0.001)
    assert ended.code == 0, ended.err
    assert len(re.findall(r"^ +100(?:000)?  (?:uniform|trace) ", ended.out, re.MULTILINE)) == 48


ON_RANKS = [
    [str(BENCHMARKS / "exchange.py"), "--rounds", "2", "--turns", "1", "--wait", "0.1"],
    [str(BENCHMARKS / "large_models.py"), "0.01", "--rounds", "2"],
]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.mpi
def test_the_programs_own_loop_is_measured_and_the_rounds_of_every_rank_are_watched(launch, tmp_path):
    """In one launch: the ranks import torch once."""
    both = tmp_path / "both.py"
    both.write_text(
        f"import runpy, sys\nfor sys.argv in {ON_RANKS}:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    ended = launch(2, script=both)
    assert ended.code == 0, ended.err
    assert "a round of the program, nothing trained" in ended.out
    rows = re.findall(r"^ +0\.01 M fedavg   rank \d +round +[\d.]+ s ", ended.out, re.MULTILINE)
    assert len(rows) == 2, ended.out


def test_start_measures_every_command(script, hpctrip, monkeypatch):
    """The commands themselves run in this process: all are understood and end well."""
    begun, subprocess_run = [], subprocess.run

    def run(words, **options):
        if "hpctrip" not in words:
            return subprocess_run(words, **options)
        begun.append(words)
        monkeypatch.chdir(options["cwd"])
        return SimpleNamespace(returncode=hpctrip(*words[words.index("hpctrip") + 1 :]).code, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    ended = script(BENCHMARKS / "start.py", "--turns", 1, "--ranks", "2")
    assert ended.code == 0, ended.err
    assert len(re.findall(r" [\d.]+ s$", ended.out, re.MULTILINE)) == len(begun) == 5
    assert begun[-1] == ["mpirun", "-n", "2", *begun[-2]] and begun[-2][:3] == [
        sys.executable,
        "-m",
        "hpctrip",
    ]


def test_emulated_links_are_set_beside_the_formula(launch):
    """Where root may have network namespaces; elsewhere one line says what is needed."""
    ended = launch(0, "--megabytes", 0.3, "--repeats", 1, script=BENCHMARKS / "links.py")
    assert ended.code == 0, ended.err
    if skipped := re.fullmatch(r"links: skipped: (.+)\n", ended.out):
        pytest.skip(skipped[1])
    assert (
        len(re.findall(r"^(?:star|star, shared link|ring) +[\d.]+ +[\d.]+ +[\d.]+$", ended.out, re.MULTILINE))
        == 3
    )


def test_links_are_not_emulated_without_the_tools(launch):
    ended = launch(0, script=BENCHMARKS / "links.py", env={"PATH": ""})
    assert ended.code == 0, ended.err
    assert re.fullmatch("links: skipped: needs (ip and tc .iproute2.|root on Linux)\n", ended.out)


def test_metering_is_set_against_a_round(script, tiny):
    ended = script(BENCHMARKS / "metering.py", tiny, "--rounds", 2, "--laps", 10)
    assert ended.code == 0, ended.err
    assert re.search(r"^metering: [\d.]+% of a round$", ended.out, re.MULTILINE), ended.out


def test_engines_train_the_same_models(script):
    arguments = ("--model", "W1s", "--sites", 1, "--samples", 20, "--repeats", 1)
    ended = script(BENCHMARKS / "engines.py", *arguments)
    assert ended.code == 0, ended.err


def test_cluster_counts_its_events(script):
    ended = script(BENCHMARKS / "cluster.py", "--jobs", 3)
    assert ended.code == 0, ended.err
    assert re.search(r"^ +3 +16  powerflow +\d+ ", ended.out, re.MULTILINE)


JOBS = ("-o", "jobs.num_jobs=4", "-o", "jobs.longest_s=900", "-o", "jobs.span_s=900")
CLUSTER = BENCHMARKS.with_name("inputs") / "cluster/powerflow.toml"


def test_the_claim_is_a_table_of_ratios_at_equal_energy_that_goes_on(script, tmp_path):
    out = tmp_path / "claim.csv"
    for baselines in (["fifo"], ["fifo", "fifo+backfill"]):
        only = (
            "--precision",
            0.5,
            "--loads",
            1,
            "--accounts",
            "off+hosts",
            "--baselines",
            *baselines,
            "--out",
            out,
        )
        ended = script(BENCHMARKS / "cluster_claim.py", CLUSTER, *JOBS, *only)
        assert ended.code == 0, ended.err
        assert re.findall(r"^ +1  off\+hosts +(\S+) ", ended.out, re.MULTILINE) == baselines[-1:]
    table = pd.read_csv(out)
    assert table["baseline"].tolist() == ["fifo", "fifo+backfill"]
    assert table["ratio"].tolist() == (table["jct_s"] / table["powerflow_jct_s"]).tolist()
    assert (table["powerflow_kwh"] <= table["kwh"]).all()


def test_the_front_has_a_row_for_each_setting(script, tmp_path):
    out = tmp_path / "front.csv"
    limited = ("-o", "budget.kind=power", "-o", "budget.watts=4000", "--budget", "4 kW")
    ended = script(BENCHMARKS / "cluster_front.py", CLUSTER, *JOBS, *limited, "--out", out)
    assert ended.code == 0, ended.err
    table = pd.read_csv(out)
    counts = table.groupby("scheduler").size().to_dict()
    assert counts == {"powerflow": 51, "elasticflow-like": 40, "elasticflow-within-power": 30}
    assert table["setting"].nunique() == 51 + 40 and table["jct_s"][:17].notna().all()


FROZEN = {
    "40..69": "dbfd691a884d99a33e4fe1f9d955e4713d2131eb168eb339b0b01b6cf155259c",
    "70..99": "e2d7645d72e0882dfd40e8d364f099adb99e35ef0216ccf1c07c250b60f1bb58",
}
"""SHA-256 of what these scenarios of the random league are, before anything ran on them."""


@pytest.mark.parametrize("numbers", FROZEN)
def test_the_unseen_scenarios_are_those_that_were_frozen(numbers):
    drawn = runpy.run_path(str(BENCHMARKS / "league_random.py"))
    scenarios = {number: drawn["scenario"](number, Path("/")) for number in parse_range(numbers)}
    shares = {number: drawn["_share"](number) for number in scenarios}
    last = [drawn["MAX_ROUNDS"]] if numbers == "40..69" else [drawn["MOST_ROUNDS"], drawn["LATEST"]]
    exact = json.dumps([scenarios, shares, drawn["FIXED"], *last], sort_keys=True)
    # processors differ in the last bits of exp
    text = json.dumps(json.loads(exact, parse_float=lambda number: f"{float(number):.9g}"))
    assert sha256((text + drawn["varying"]().to_csv()).encode()).hexdigest() == FROZEN[numbers]
