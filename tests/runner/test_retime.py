"""A finished run under another clock, network, power or policy: what it trained is not trained again."""

import math

import pytest

from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

WORLD = ("timing.clock=max-plus-max", "network.update_bytes=1e8", "power.kind=constant")


TO_A_TARGET = (
    "policy.kind=lowest-latency",
    "policy.k=3",
    "stop.target_accuracy=0.05",
    "workload.train_samples=400",
    "workload.test_samples=200",
)
"""With so many samples it is reached."""


@pytest.fixture(scope="module")
def nearest(trained):
    """The three nearest sites, whatever power they have."""
    return trained(*TO_A_TARGET)


@pytest.fixture
def retime(hpctrip, tmp_path):
    """`retime(run, *lines, ...) -> (how it ended, the new run)`."""

    def run(of, *lines, options=()):
        out = tmp_path / "retimed.h5"
        overrides = [part for line in lines for part in ("-o", line)]
        ended = hpctrip("retime", of.path, *overrides, *options, "--out", out)
        return ended, open_run(out) if ended.code == 0 else None

    return run


def test_nothing_is_trained_where_the_cohorts_are_the_same(trained, nearest, retime):
    ended, retimed = retime(nearest, *WORLD)
    assert ended.code == 0, ended.err
    alone = trained(*TO_A_TARGET, *WORLD)
    assert diff(alone, retimed) == [] and verify(retimed) == []
    n = len(nearest.rounds)
    assert f"decisions never part from those of {nearest.path}: {n} round(s) here, {n} there\n" in ended.out
    assert f"{n} round(s): {n} taken, 0 trained\n" in ended.out
    old_s, new_s = nearest.time_to_accuracy_s, retimed.time_to_accuracy_s
    assert old_s != new_s and f"{old_s / 3600:.3f} h in" in ended.out
    assert f"({new_s / old_s:.3f} times that)" in ended.out


def test_a_run_that_stops_earlier_knows_all_but_its_last_models_digest(trained, retime):
    whole = trained("policy.kind=lowest-latency", "policy.k=3")
    ended, retimed = retime(whole, "stop.max_rounds=2")
    assert ended.code == 0 and "2 round(s): 2 taken, 0 trained" in ended.out
    assert f"never part from those of {whole.path}: 2 round(s) here, 3 there" in ended.out
    assert retimed.meta["params_digest"] == "" and math.isnan(retimed.time_to_accuracy_s)


def test_other_cohorts_are_trained_and_their_first_round_is_printed(trained, nearest, retime, tmp_path):
    ended, retimed = retime(nearest, "policy.k=4", options=("--store", tmp_path / "store"))
    assert f"decisions part at round 1: 4 sites, 3 in {nearest.path}" in ended.out
    assert f"{len(retimed.rounds)} round(s): 0 taken, {len(retimed.rounds)} trained" in ended.out
    # what a results file says of itself is believed for itself alone: the store holds what was trained here
    assert len(list((tmp_path / "store").glob("??/*.round"))) == len(retimed.rounds)
    ended, again = retime(nearest, "policy.k=4", options=("--store", tmp_path / "store", "--overwrite"))
    assert f"{len(again.rounds)} round(s): {len(again.rounds)} taken, 0 trained" in ended.out
    assert diff(retimed, again) == []


def test_other_local_work_is_trained_and_its_first_round_is_printed(trained, retime):
    """All ten sites train in both runs."""
    run = trained("policy.kind=goodput", "policy.min_sites=10")
    ended, retimed = retime(run, "policy.local_work=adaptive")
    times = retimed.rounds["local_work"][1]
    assert f"local work parts at round 2: {times} times what [train] says, 1 in {run.path}" in ended.out
    assert times > 1 and "round(s): 0 taken, 3 trained" in ended.out  # the file has no model after round 1


def test_the_recorded_input_is_taken_up_whole_its_store_and_callbacks_too(trained, retime, tmp_path):
    run = trained(
        "policy.kind=lowest-latency",
        "policy.k=3",
        "stop.max_rounds=1",
        f"store.path='{tmp_path / 'its'}'",
        f"callbacks.jsonl.path='{tmp_path / 'lines'}'",
    )
    before = list((tmp_path / "its").rglob("*.round"))
    (tmp_path / "lines").unlink()
    ended, _ = retime(run, "policy.k=2")
    assert ended.code == 0 and "0 taken, 1 trained" in ended.out
    assert len(list((tmp_path / "its").rglob("*.round"))) == len(before) + 1
    assert len((tmp_path / "lines").read_text().splitlines()) == 1


def test_retiming_a_run_of_another_machine_warns_of_other_bits(nearest, retime, monkeypatch):
    monkeypatch.setattr("hpctrip.learn.params.arithmetic", lambda device: "other kernels")
    ended, _ = retime(nearest)
    assert (
        f"warning: {nearest.path} was trained with another hpctrip or torch, or on another machine"
        in ended.out
    )


@pytest.mark.parametrize(
    ("lines", "fragments"),
    [
        (["train.lr=0.5"], ["train.lr: is 0.5, but 0.01 in", "training sees it", "use `run`"]),
        (["policy.kind=centralized"], ["partition.pooled_sites: is 10, but absent in"]),
        (["sites.num_sites=11"], ["sites: the input leads to 11 sites", "has 10"]),
        (["timing.compute=measured"], ['timing.compute: is "measured"']),
    ],
)
def test_what_training_sees_may_not_change(nearest, retime, lines, fragments):
    ended, _ = retime(nearest, *lines)
    assert ended.code == 2 and all(fragment in ended.err for fragment in fragments)
    assert all("use `run`" in line for line in ended.report)


def test_it_does_not_write_over_the_run_itself(nearest, hpctrip):
    hpctrip("retime", nearest.path, "--out", nearest.path, "--overwrite").check_refused(
        ["is the run itself", "choose another --out"]
    )
