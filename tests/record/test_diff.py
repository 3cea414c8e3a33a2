"""`diff` names the first round at which two runs part."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.writer import write_run
from hpctrip.sim.rounds import History


@pytest.fixture
def compared(fake_history, fake_sites, meta, tmp_path):
    """`compared(change, **meta)`: the lines of diff between three rounds and the same with the second one changed."""

    def lines(change=lambda row: row, num_rounds=3, **more):
        first, second, third = fake_history(3, 5).rows
        other = (first, change(second), third)[:num_rounds]
        write_run(tmp_path / "a.h5", meta, fake_sites(5), fake_history(3, 5))
        write_run(tmp_path / "b.h5", meta | more, fake_sites(5), History(other))
        return [*map(str, diff(open_run(tmp_path / "a.h5"), open_run(tmp_path / "b.h5")))]

    return lines


def test_equal_runs_do_not_differ(compared):
    assert compared() == []


def test_wall_times_and_machines_do_not_count(compared):
    assert compared(lambda row: replace(row, wall_s=9.0, idle_fraction=0.9), num_ranks=7, hosts=["x"]) == []


def test_only_the_first_round_that_differs_is_reported(compared):
    def change(row):
        cohort = replace(row.cohort, comm_s=row.cohort.comm_s + 1)
        return replace(row, clock_s=99.0, cohort=cohort)

    assert compared(change) == ["round 2: clock_s: 52.0 | 99.0", "round 2: comm_s of site 2: 1.0 | 2.0"]


def test_a_cohort_in_another_order_is_another_cohort(compared):
    def change(row):
        columns = {name: getattr(row.cohort, name)[::-1] for name in row.cohort.__dataclass_fields__}
        return replace(row, cohort=replace(row.cohort, **columns))

    assert compared(change) == ["round 2: cohort: [2, 1, 0] | [0, 1, 2]"]


def test_nan_equals_nan_and_differs_from_numbers(compared):
    assert compared(lambda row: replace(row, train_loss=np.nan)) == ["round 2: train_loss: 2.0 | nan"]


def test_keys_that_change_no_result_are_ignored_and_stop_rules_are_not(compared, meta):
    settings = {"policy": {"kind": "powertrip"}, "timing": {"clock": "straggler"}}
    settings |= {"checkpoint": {"every_s": 5.0}, "ranks": {"transport": "mpi"}, "label": "x"}
    assert compared(input_json=json.dumps(settings)) == []
    settings |= {"ranks": {"threads": 2}, "stop": {"max_rounds": 3}}
    assert compared(input_json=json.dumps(settings)) == [
        "input: ranks.threads: absent | 2",
        "input: stop.max_rounds: absent | 3",
    ]


def test_lengths_digests_and_input_keys_are_reported(compared):
    lines = compared(num_rounds=2, params_digest="00", input_json='{"policy": {"kind": "powertrip", "k": 3}}')
    assert lines == [
        "input: timing.clock: 'straggler' | absent",
        "input: policy.k: absent | 3",
        "rounds: 3 | 2",
        "params_digest:  | 00",
    ]


def test_long_values_are_cut_and_escaped(compared):
    settings = json.dumps({"policy": {"kind": "\x1b" * 10_000}})
    lines = compared(input_json=settings, params_digest="\x1b[31m" * 1000)
    assert all(len(line) < 600 and line.isprintable() for line in lines) and len(lines) == 3


def test_a_round_that_is_recorded_twice_is_reported(compared):
    assert "round 1: rounds: 1 | 2" in compared(lambda row: replace(row, round=1))
