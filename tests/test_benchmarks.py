"""The benchmarks still run, in their smallest form; what they measure is not looked at."""

import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_selection_times_every_policy(launch):
    ended = launch(0, "--repeats", 1, script=BENCHMARKS / "selection.py")
    assert ended.code == 0, ended.err
    assert len(re.findall(r"^ +100(?:000)?  (?:uniform|trace) ", ended.out, re.MULTILINE)) == 48


@pytest.mark.mpi
def test_exchange_runs_the_programs_own_loop(launch):
    ended = launch(3, "--rounds", 2, "--turns", 1, script=BENCHMARKS / "exchange.py")
    assert ended.code == 0, ended.err
    assert "a round of the program, nothing trained" in ended.out


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


def test_the_claim_is_a_table_of_ratios_at_equal_energy(launch, tmp_path):
    given = (
        "inputs/cluster/powerflow.toml",
        "-o",
        "jobs.num_jobs=8",
        "-o",
        "jobs.longest_s=1800",
        "--precision",
        0.5,
    )
    only = ("--loads", 1, "--accounts", "off+hosts", "--baselines", "fifo", "--out", tmp_path / "claim.csv")
    ended = launch(0, *given, *only, script=BENCHMARKS / "cluster_claim.py")
    assert ended.code == 0, ended.err
    assert re.search(r"^ +1  off\+hosts +fifo ", ended.out, re.MULTILINE)
    assert (tmp_path / "claim.csv").read_text().startswith("load,account,baseline,")
