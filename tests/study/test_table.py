"""The ratio of times, paired by seed, and the array of Slurm, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from hpctrip.record.reader import Run
from hpctrip.study.ratio import Missing, paired_ratio
from hpctrip.study.slurm import spans


def runs(**hours):
    """A run for every seed, `s1=2.0`: it reaches its target in so many hours, or has not after -2.0."""
    return [_run(int(seed[1:]), abs(value), value > 0) for seed, value in hours.items()]


def _run(seed, hours, reaches):
    rounds = pd.DataFrame({"clock_s": [3600 * hours], "round": [1], "accuracy": [0.5 if reaches else 0.4]})
    meta, nothing = {"seed": seed, "target_accuracy": 0.45}, pd.DataFrame()
    return Run(Path("x"), 2, meta, (), "", "", {}, nothing, rounds, nothing, nothing)


def test_a_ratio_is_the_geometric_mean_over_common_seeds_with_its_interval():
    found = paired_ratio(runs(s1=2.0, s2=8.0, s7=5.0), runs(s1=1.0, s2=1.0, s3=1.0))
    assert found.n == 2 and found.value == pytest.approx(4.0)
    half = (
        12.7062 * math.log(4) / math.sqrt(2) / math.sqrt(2)
    )  # t of one degree of freedom, sd of log 2 and log 8
    assert found.high == pytest.approx(4 * math.exp(half)) and found.low == pytest.approx(4 * math.exp(-half))


def test_one_pair_has_no_interval_and_a_seed_that_did_not_arrive_makes_a_bound():
    assert paired_ratio(runs(s1=3.0), runs(s1=2.0)).text() == "1.5"
    assert paired_ratio(runs(s1=-3.0), runs(s1=2.0)).text() == "at least 1.5"
    assert paired_ratio(runs(s1=-3.0), runs(s1=-2.0)).text() == "unknown"
    with pytest.raises(Missing):
        paired_ratio(runs(s1=3.0), runs(s2=2.0))


def test_indices_of_an_array_are_written_as_slurm_reads_them():
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8" and spans([4]) == "4"
