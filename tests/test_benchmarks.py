"""The benchmarks still run, in their smallest form; what they measure is not looked at."""

import re
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

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


def test_retime_counts_what_is_trained():
    main = runpy.run_path(str(BENCHMARKS / "retime.py"))["main"]
    small = "--sites 10 --samples 100 --rounds 2 --target 1 --bandwidths 1 --speeds 2 --without 1"
    ended = CliRunner().invoke(main, small.split(), catch_exceptions=False)
    assert re.search(r"^static +2 +4 +2 +2.0x ", ended.output, re.MULTILINE), ended.output
