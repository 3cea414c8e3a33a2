"""The benchmarks still run, in their smallest form; what they measure is not looked at."""

import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_selection_times_every_policy(launch):
    ended = launch(0, "--repeats", 1, script=BENCHMARKS / "selection.py")
    assert ended.code == 0, ended.err
    assert len(re.findall(r"^ +100(?:000)?  (?:uniform|trace) ", ended.out, re.MULTILINE)) == 20


@pytest.mark.mpi
def test_exchange_runs_the_programs_own_loop(launch):
    ended = launch(3, "--rounds", 2, "--turns", 1, script=BENCHMARKS / "exchange.py")
    assert ended.code == 0, ended.err
    assert "a round of the program, nothing trained" in ended.out


def test_engines_train_the_same_models(launch):
    arguments = ("--model", "W1s", "--sites", 1, "--samples", 20, "--repeats", 1)
    ended = launch(0, *arguments, script=BENCHMARKS / "engines.py")
    assert ended.code == 0, ended.err


def test_cluster_counts_its_events(launch):
    ended = launch(0, "--jobs", 20, script=BENCHMARKS / "cluster.py")
    assert ended.code == 0, ended.err
    assert re.search(r"^ +20 +16  powerflow +\d+ ", ended.out, re.MULTILINE)
