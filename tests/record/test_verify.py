"""Each thing that verify promises to notice, changed alone in a sound file."""

from __future__ import annotations

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest

from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.sim.rounds import History
from hpctrip.sim.timing import Timing


def test_a_sound_file_has_no_faults(run_file):
    assert verify(open_run(run_file)) == []


@pytest.fixture
def faults_after(fake_history, written):
    """Faults of three rounds whose second is changed by `change` and which are written again with valid checksums."""

    def faults(change, **meta):
        first, second, third = fake_history(3, 5).rows
        run = written(History((first, change(second), third)), **meta)
        return [str(fault).removeprefix(f"{run.path}: ") for fault in verify(run)]

    return faults


def _cohort(**columns):
    return lambda row: replace(row, cohort=replace(row.cohort, **columns))


# the second round: clock 21 to 52 s, cohort [2, 1, 0] computes 30, 20, 10 s and communicates 1 s each, 303 samples
CHANGES = {
    "num_sites is 2, its cohort's is 3": lambda row: replace(row, num_sites=2),
    "num_samples is 302, its cohort's sum is 303": lambda row: replace(row, num_samples=302),
    "accuracy is 0.21, its counts give 0.2": lambda row: replace(row, accuracy=0.21, efficiency=0.11 / 31),
    "the straggler, site 4, is not in its cohort": lambda row: replace(row, straggler=4),
    "the straggler, site 1, is not the site that finished last": lambda row: replace(row, straggler=1),
    "straggler_compute_s is 29, its cohort says 30": lambda row: replace(row, straggler_compute_s=29.0),
    "straggler_comm_s is 2, its cohort says 1": lambda row: replace(row, straggler_comm_s=2.0),
    "voted_num_sites is 3, its candidates vote for 2": lambda row: replace(row, voted_num_sites=3),
    "voted_num_sites is 2, its candidates vote for 0": lambda row: replace(row, candidates=None),
    "candidate k = 3: efficiency is not gain / round_s": lambda row: replace(
        row, candidates=replace(row.candidates, efficiency=np.array([0.02, 0.04, 0.03]))
    ),
    "efficiency is 0.5, the gain per second is 0.00322581": lambda row: replace(row, efficiency=0.5),
    "site 1 is in its cohort more than once": _cohort(site=np.array([2, 1, 1])),
    "its cohort has site 5; sites are 0 to 4": _cohort(site=np.array([2, 1, 5])),
}


@pytest.mark.parametrize("fault", CHANGES)
def test_one_changed_value_is_one_fault(fault, faults_after):
    faults = faults_after(CHANGES[fault])
    assert f"round 2: {fault}" in faults
    assert all(text.startswith(("round 2: ", "round 3: efficiency")) for text in faults)


def test_a_clock_that_jumps_is_noticed_on_both_sides(faults_after):
    faults = faults_after(lambda row: replace(row, clock_s=53.0))
    assert "round 2: clock_s is 53, clock_start_s + makespan_s is 52" in faults
    assert "round 3: clock_start_s is 52, the round before ended at 53" in faults


def test_the_makespan_follows_the_clock_that_the_input_names(faults_after):
    """Compute 30, 20, 10 s; communication 1, 1, 25 s: one straggler takes 35 s, max plus max 55 s."""
    comm_s = np.array([1.0, 1.0, 25.0])
    changed = {"straggler": 0, "straggler_compute_s": 10.0, "straggler_comm_s": 25.0}

    def change(row):
        return replace(row, cohort=replace(row.cohort, comm_s=comm_s), **changed)

    def makespans(faults):
        return [text for text in faults if "makespan_s is" in text]

    assert makespans(faults_after(change)) == [
        "round 2: makespan_s is 31, the cohort's times give 35 (clock straggler)"
    ]
    timing = {"input_json": json.dumps({"timing": {"clock": "max-plus-max"}})}
    assert "round 2: makespan_s is 31, the cohort's times give 55 (clock max-plus-max)" in faults_after(
        change, **timing
    )


@pytest.mark.parametrize("clock", ["straggler", "max-plus-max", "mean-power", "aggregate-throughput"])
def test_the_makespan_is_computed_by_the_clock(clock, run_file, monkeypatch):
    """A clock that charged 7 s for every round would find every makespan wrong."""
    asked = []

    def seven(timing, compute_s, comm_s, status, deadline_s):
        asked.append(timing.clock)
        return 7.0

    monkeypatch.setattr(Timing, "makespan_s", seven)
    run = open_run(run_file)
    faults = [str(fault) for fault in verify(replace(run, input={"timing": {"clock": clock}}))]
    assert asked == [clock] * 3
    assert len(faults) == 3 and all(f"the cohort's times give 7 (clock {clock})" in text for text in faults)


def test_rounds_that_do_not_count_from_one_are_noticed(faults_after):
    assert faults_after(lambda row: replace(row, round=1)) == ["/rounds/round: does not count from 1 to 3"]


def test_a_round_without_evaluation_has_no_accuracy(faults_after):
    unevaluated = {"eval_seen": 0, "eval_correct": 0, "efficiency": float("nan")}
    faults = faults_after(lambda row: replace(row, **unevaluated))
    assert "round 2: accuracy is 0.2, its counts give nan" in faults
    faults = faults_after(lambda row: replace(row, accuracy=float("nan"), **unevaluated))
    assert faults == ["round 3: efficiency is 0.00243902, the gain per second is 0.00277778"]  # 0.2 in 72 s


EDITS = {
    "/rounds does not match its checksum": lambda file: file["rounds/update_norm"].__setitem__(1, 2.0),
    "/sites does not match its checksum": lambda file: file["sites/distance_m"].attrs.update(
        unit=np.bytes_(b"mi")
    ),
    "attributes or input do not match their checksum": lambda file: file.attrs.update(time_to_accuracy_s=1.0),
}


@pytest.mark.parametrize("problem", EDITS)
def test_an_edited_part_does_not_match_its_checksum(problem, run_file):
    with h5py.File(run_file, "r+") as file:
        EDITS[problem](file)
    with pytest.raises(DamagedError, match=f"{run_file}: is damaged .{problem}"):
        open_run(run_file)


def test_a_missing_attribute_is_named(run_file):
    run = open_run(run_file)
    del run.meta["engine"]
    assert f"{run_file}: attribute engine: is missing" in map(str, verify(run))


@pytest.mark.parametrize(
    ("values", "unit", "fault"),
    [
        (None, "", "/rounds/clock_s: is missing"),
        (np.ones(3, dtype="f4"), "s", "/rounds/clock_s: has type float32, not float64"),
        (np.array([21.0, 52.0, 93.0]), "h", "/rounds/clock_s: has the unit 'h', not 's'"),
    ],
)
def test_a_column_that_departs_from_the_schema_is_named(values, unit, fault, run_file):
    run = open_run(run_file)
    del run.rounds["clock_s"]
    if values is not None:
        run.rounds["clock_s"], run.rounds.attrs["units"]["clock_s"] = values, unit
    assert any(fault in str(other) for other in verify(run))


def test_a_wrong_time_to_accuracy_is_noticed_behind_a_fitting_checksum(run_file):
    run = open_run(run_file)
    meta = run.meta | {"time_to_accuracy_s": 21.0}
    wrong = replace(run, meta=meta)
    assert [str(fault) for fault in verify(wrong)] == [
        f"{run_file}: time_to_accuracy_s: is 21, the rounds say 52"
    ]


def test_the_number_of_faults_is_bounded(run_file, monkeypatch):
    from hpctrip.record import verify as module

    monkeypatch.setattr(module, "MOST_FAULTS", 2)
    run = open_run(run_file)
    assert len(verify(replace(run, input={"faults": {"deadline_s": 1}}))) == 2
