"""The benchmarks still run, in their smallest form; what they measure is not looked at."""

import json
import re
import runpy
import sys
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest

from hpctrip.studies.file import parse_range

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_selection_times_every_policy(launch):
    ended = launch(0, "--repeats", 1, "--share", 0.001, script=BENCHMARKS / "selection.py")
    assert ended.code == 0, ended.err
    assert len(re.findall(r"^ +100(?:000)?  (?:uniform|trace) ", ended.out, re.MULTILINE)) == 48


@pytest.mark.mpi
def test_exchange_runs_the_programs_own_loop(launch):
    ended = launch(2, "--rounds", 2, "--turns", 1, script=BENCHMARKS / "exchange.py")
    assert ended.code == 0, ended.err
    assert "a round of the program, nothing trained" in ended.out


@pytest.mark.mpi
def test_start_measures_every_command(launch):
    ended = launch(0, "--turns", 1, "--ranks", "2", script=BENCHMARKS / "start.py")
    assert ended.code == 0, ended.err
    assert len(re.findall(r" [\d.]+ s$", ended.out, re.MULTILINE)) == 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.mpi
def test_large_models_watches_the_rounds_of_every_rank(launch):
    ended = launch(2, 0.01, "--rounds", 2, script=BENCHMARKS / "large_models.py")
    assert ended.code == 0, ended.err
    rows = re.findall(r"^ +0\.01 M fedavg   rank \d +round +[\d.]+ s ", ended.out, re.MULTILINE)
    assert len(rows) == 2, ended.out


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


def test_metering_is_set_against_a_round(launch, tiny):
    ended = launch(0, tiny, "--rounds", 2, "--laps", 10, script=BENCHMARKS / "metering.py")
    assert ended.code == 0, ended.err
    assert re.search(r"^metering: [\d.]+% of a round$", ended.out, re.MULTILINE), ended.out


def test_engines_train_the_same_models(launch):
    arguments = ("--model", "W1s", "--sites", 1, "--samples", 20, "--repeats", 1)
    ended = launch(0, *arguments, script=BENCHMARKS / "engines.py")
    assert ended.code == 0, ended.err


def test_cluster_counts_its_events(launch):
    ended = launch(0, "--jobs", 3, script=BENCHMARKS / "cluster.py")
    assert ended.code == 0, ended.err
    assert re.search(r"^ +3 +16  powerflow +\d+ ", ended.out, re.MULTILINE)


JOBS = ("-o", "jobs.num_jobs=4", "-o", "jobs.longest_s=900", "-o", "jobs.span_s=900")
CLUSTER = "inputs/cluster/powerflow.toml"


def test_the_claim_is_a_table_of_ratios_at_equal_energy_that_goes_on(launch, tmp_path):
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
        ended = launch(0, CLUSTER, *JOBS, *only, script=BENCHMARKS / "cluster_claim.py")
        assert ended.code == 0, ended.err
        assert re.findall(r"^ +1  off\+hosts +(\S+) ", ended.out, re.MULTILINE) == baselines[-1:]
    table = pd.read_csv(out)
    assert table["baseline"].tolist() == ["fifo", "fifo+backfill"]
    assert table["ratio"].tolist() == (table["jct_s"] / table["powerflow_jct_s"]).tolist()
    assert (table["powerflow_kwh"] <= table["kwh"]).all()


def test_the_front_has_a_row_for_each_setting(launch, tmp_path):
    out = tmp_path / "front.csv"
    limited = ("-o", "budget.kind=power", "-o", "budget.watts=4000", "--budget", "4 kW")
    ended = launch(0, CLUSTER, *JOBS, *limited, "--out", out, script=BENCHMARKS / "cluster_front.py")
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
