"""The ratio of times, paired by seed, and the array of Slurm, by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from hpctrip.study.slurm import spans
from hpctrip.study.table import NO_RATIO, paired_ratio


def runs(**hours):
    """{seed: a run that reached its target in so many hours}."""
    return {int(seed[1:]): SimpleNamespace(time_to_accuracy_s=3600 * value) for seed, value in hours.items()}


def test_a_ratio_is_the_geometric_mean_over_common_seeds_with_its_interval():
    found = paired_ratio(runs(s1=2.0, s2=8.0, s7=5.0), runs(s1=1.0, s2=1.0, s3=1.0))
    assert found.num_pairs == 2 and found.mean == pytest.approx(4.0)
    half = (
        12.7062 * math.log(4) / math.sqrt(2) / math.sqrt(2)
    )  # t of one degree of freedom, sd of log 2 and log 8
    assert found.high == pytest.approx(4 * math.exp(half)) and found.low == pytest.approx(4 * math.exp(-half))


def test_one_pair_has_no_interval_and_a_seed_that_did_not_arrive_no_ratio():
    assert str(paired_ratio(runs(s1=3.0), runs(s1=2.0))) == "1.5"
    assert paired_ratio(runs(s1=3.0, s2=math.nan), runs(s1=2.0, s2=1.0)) == NO_RATIO
    assert paired_ratio(runs(s1=3.0), runs(s2=2.0)) == NO_RATIO and str(NO_RATIO) == "-"


def test_indices_of_an_array_are_written_as_slurm_reads_them():
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8" and spans([4]) == "4"
