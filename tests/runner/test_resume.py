"""A run that stopped goes on to the same bits as one that never did; here in one process, ranks in test_survive."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from hpctrip.base.errors import HpctripError, InputError, InterruptedRun, UnsavedRun
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record import writer
from hpctrip.record.checkpoint import Checkpointer, Checkpointing, generations, newest, pack
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner import session as launching
from hpctrip.runner import signals
from hpctrip.runner.resume import start_or_resume, start_resumed
from hpctrip.runner.session import start_new
from hpctrip.runner.signals import Interrupt, Interruption, Signals, refuse_left_over, stop_file
from hpctrip.sim.rounds import History
from hpctrip.sim.step import State

TINY = [
    "sites.num_sites=6",
    "workload.train_samples=60",
    "workload.test_samples=40",
    "stop.target_accuracy=1.0",
    "checkpoint.every_rounds=1",
    "watchdog.enabled=false",
]


def settings(*lines, rounds=4):
    return [*TINY, f"stop.max_rounds={rounds}", *lines]


def run(out, *lines, rounds=4, **how):
    launching.launch(lambda: start_new([], settings(*lines, rounds=rounds), str(out), False, **how))
    return open_run(out)


def resume(source, *lines, rounds=4, to=None):
    launching.launch(
        lambda: start_resumed(str(source), [], [*lines, f"stop.max_rounds={rounds}"], to and str(to))
    )
    return open_run(to or source)


def again(out, *lines, rounds=4):
    """The command that starts, goes on and ends."""
    launching.launch(lambda: start_or_resume([], settings(*lines, rounds=rounds), str(out)))
    return open_run(out)


def assert_same(found, expected):
    assert verify(found) == [] and diff(found, expected) == []
    assert found.meta["stop_reason"] == expected.meta["stop_reason"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """`begun(run.h5, *lines, rounds=)`: as `run`, but copied where another test has begun the same."""
    made = {}

    def copied(out, *lines, rounds):
        if (lines, rounds) not in made:
            made[lines, rounds] = tmp_path_factory.mktemp("begun")
            run(made[lines, rounds] / "run.h5", *lines, rounds=rounds)
        shutil.copytree(made[lines, rounds], out.parent, dirs_exist_ok=True)
        return open_run(out)

    return copied


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run(tmp_path_factory.mktemp("undisturbed") / "run.h5")


LEARNERS = {
    "fedavg": [],
    "momentum and error feedback": [
        "server.momentum=0.9",
        "policy.kind=goodput",
        "compression.kind=top-k",
    ],
    "fedadam over parts of passes": [
        "server.kind=fedadam",
        "policy.kind=random",
        "policy.k=3",
        "train.local_epochs=0.3",
        "train.batch_size=4",
    ],
    "adaptive local work": ["policy.kind=goodput", "policy.local_work=adaptive"],
    "schedule over skipped rounds": [
        "policy.kind=random",
        "policy.k=3",
        "train={optimizer='adamw', keep_optimizer=true, local_steps=2, warmup_steps=3, cosine_steps=8}",
    ],
    "fragments": [
        "policy.kind=all",
        "train={local_steps=2, batch_size=4}",
        "overlap={fragments=2, steps=1, blend=0.5}",
        "compression={kind='top-k', fraction=0.5}",
        "server={momentum=0.9, nesterov=true}",
    ],
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(tmp_path, undisturbed, begun, learner):
    lines, out = LEARNERS[learner], tmp_path / "run.h5"
    whole = run(tmp_path / "whole.h5", *lines) if lines else undisturbed
    half = begun(out, *lines, rounds=2)
    assert half.meta["stop_reason"] == "max_rounds = 2"
    assert_same(resume(out), whole)
    starts = open_run(out).meta["starts"]
    assert len(starts) == 2 and starts[1].startswith("after round 2: ")
    assert half.meta["created_utc"] == open_run(out).meta["created_utc"]


def test_checkpoints_hold_the_mean_updates_whose_angle_is_recorded(tmp_path):
    """After the server's own state; only if the policy compares them."""
    made = run(tmp_path / "run.h5", "policy.kind=goodput", "server.momentum=0.9", rounds=3)
    second, third = (checkpoints.read(tmp_path / f"run.h5.ckpt{n}").model for n in (1, 0))
    velocity, update = third.slots
    assert 0.9 * second.slots[0] + update == pytest.approx(velocity)
    assert third.params - second.params == pytest.approx(velocity, abs=1e-6)
    last = second.slots[1]
    cosine = update @ last / np.linalg.norm(update) / np.linalg.norm(last)
    assert abs(made.rounds["update_cosine"][2] - cosine) < 1e-7
    assert made.rounds["update_cosine"].notna().tolist() == [False, True, True]
    assert made.rounds["update_curvature"].notna().tolist() == [False, True, True]
    fixed = run(tmp_path / "fixed.h5", "policy={kind='goodput', noise_weight=0.5}")
    assert fixed.rounds["update_cosine"].isna().all()
    assert len(checkpoints.read(tmp_path / "fixed.h5.ckpt0").model.slots) == 0


def test_a_resumed_model_with_buffers_and_dropout_ends_with_the_same_bits(tmp_path, tiny, trained, hpctrip):
    half, plugin = tmp_path / "half.h5", Path(__file__).parents[1] / "points.py"
    lines = ("workload={kind='points', train_samples=400, test_samples=200, dropout=0.5}", "policy.kind=all")
    ended = hpctrip(
        "run", tiny, "--plugin", plugin, *(f"-o{x}" for x in (*lines, "stop.max_rounds=1")), "--out", half
    )
    assert ended.code == 0, ended.err
    ended = hpctrip("resume", half, "--plugin", plugin, "-o", "stop.max_rounds=3")
    assert ended.code == 0, ended.err
    assert diff(open_run(half), trained(f"plugins=['{plugin}']", *lines)) == []


def test_a_checkpoint_without_the_columns_of_flights_goes_on_to_the_same_file(tmp_path, monkeypatch):
    """As an older hpctrip wrote it: what it did not record follows from the rest."""
    sites = ("start_s", "age", "weight", "local_work")
    later = {"rounds/link_free_s", *(f"rounds_sites/{name}" for name in sites)}
    run(tmp_path / "half.h5", rounds=1)
    with monkeypatch.context() as patch:
        every = checkpoints.history_arrays
        patch.setattr(
            checkpoints,
            "history_arrays",
            lambda history: {k: v for k, v in every(history).items() if k not in later},
        )
        saved, file, _ = checkpoints.newest(tmp_path / "half.h5")
        file.write_bytes(b"".join(checkpoints.pack(saved)))
    assert np.isnan(checkpoints.read(file).state.history.last.cohort.weight).all()
    assert_same(resume(tmp_path / "half.h5", rounds=3), run(tmp_path / "whole.h5", rounds=3))


def test_rows_before_the_checkpoint_keep_their_wall_times_and_rows_beyond_it_are_dropped(tmp_path, begun):
    out = tmp_path / "run.h5"
    long = begun(out, rounds=3)
    resumed = resume(f"{out}.ckpt1", rounds=2, to=tmp_path / "short.h5")  # ckpt0: round 3, ckpt1: round 2
    assert len(resumed.rounds) == 2
    assert resumed.rounds["wall_s"].tolist() == long.rounds["wall_s"].tolist()[:2]
    assert len(open_run(out).rounds) == 3  # the run that was resumed from stays as it was


def test_the_extra_evaluation_of_the_last_round_is_removed_by_a_resume(tmp_path):
    whole = run(tmp_path / "whole.h5", "evaluate.every_rounds=2")
    run(tmp_path / "half.h5", "evaluate.every_rounds=2", rounds=3)
    assert_same(resume(tmp_path / "half.h5"), whole)


def test_a_damaged_generation_is_named_and_the_one_before_it_is_used(tmp_path, undisturbed, begun, capsys):
    out = tmp_path / "run.h5"
    begun(out, rounds=3)
    last = tmp_path / "run.h5.ckpt0"
    last.write_bytes(last.read_bytes()[:-100])
    assert_same(resume(out), undisturbed)
    output = capsys.readouterr().out
    assert "run.h5.ckpt0: is damaged" in output and "resuming after round 2" in output


def flip_in_its_input(path):
    """Damage the input that a results file holds: one bit of the key `name`."""
    data = bytearray(path.read_bytes())
    data[data.index(b'name = "')] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip_in_its_input, lambda path: path.write_bytes(b"")])
def test_damaged_results_are_written_anew_from_the_checkpoint(tmp_path, undisturbed, begun, damage):
    out = tmp_path / "run.h5"
    begun(out, rounds=3)
    damage(out)
    assert_same(resume(out), undisturbed)


def test_without_a_checkpoint_the_file_whose_input_is_damaged_is_named(tmp_path, tiny, begun, hpctrip):
    out = tmp_path / "run.h5"
    begun(out, rounds=3)
    flip_in_its_input(out)
    for checkpoint in generations(out):
        checkpoint.unlink(missing_ok=True)
    ended = hpctrip("run", tiny, "-o", "stop.max_rounds=1", "--resume", "--out", out)
    ended.check_refused([f"{out}: is damaged (attributes or input do not match", "restore a copy"])


def test_site_states_of_unknown_sites_are_refused(tmp_path):
    out = tmp_path / "run.h5"
    run(out, "compression.kind=top-k", rounds=1)
    found, path, _ = newest(out)
    assert set(found.model.site_states) == set(found.state.history.last.cohort.site)
    too_many = dataclasses.replace(found.model, site_states={6: found.model.params})
    path.write_bytes(b"".join(pack(dataclasses.replace(found, model=too_many))))
    with pytest.raises(InputError, match=r"numbers kept by site 6; a site keeps \d+, sites are 0 to 5"):
        resume(out)


def test_a_resume_may_change_only_stop_rules_and_neutral_keys(tmp_path, undisturbed, begun):
    out = tmp_path / "run.h5"
    begun(out, rounds=2)
    with pytest.raises(InputError) as caught:
        resume(out, "seed=1", "policy.kind=static", "policy.k=3", "ranks.threads=2")
    assert {fault.place for fault in caught.value.faults} >= {"seed", "policy.kind", "ranks.threads"}
    free = [
        "train.lr=0.01",
        "label=new",
        "checkpoint.every_rounds=3",
        "interrupt.margin_rounds=1",
        "ranks.transport=serial",
    ]
    resumed = resume(out, *free)
    assert_same(resumed, undisturbed)
    assert resumed.input != undisturbed.input


def test_the_same_command_starts_goes_on_and_does_nothing_more(tmp_path, undisturbed, capsys):
    out = tmp_path / "run.h5"
    again(out, rounds=2)
    assert_same(again(out), undisturbed)
    capsys.readouterr()
    before = out.read_bytes()
    again(out)
    assert out.read_bytes() == before and "is finished already" in capsys.readouterr().out
    with pytest.raises(InputError, match="seed: is 5, but 0 in"):
        again(out, "seed=5")


def test_the_same_command_without_checkpoints_begins_again_unless_it_is_finished(tmp_path, undisturbed):
    out, off = tmp_path / "run.h5", "checkpoint.enabled=false"
    run(out, off, rounds=2)
    assert newest(out) is None
    with pytest.raises(InputError, match=r"run --resume --out \S+/run.h5 INPUT starts it from the beginning"):
        resume(out)
    found = again(out, off, rounds=2)
    assert found.meta["starts"] == open_run(out).meta["starts"]
    # the file is from before [faults] existed
    older = {name: table for name, table in found.input.items() if name != "faults"}
    texts = {"input_toml": found.input_toml, "input_json": json.dumps(older)}
    meta = {**found.meta, **texts, "status": "failed"}
    writer.write_run(out, meta, {"site": (np.arange(6), "1", "site")}, History())
    assert_same(again(out, off), undisturbed)


def test_a_finished_run_without_checkpoints_is_not_called_finished_where_more_is_asked_for(tmp_path):
    out, off = tmp_path / "run.h5", "checkpoint.enabled=false"
    run(out, off, rounds=2)
    before = out.read_bytes()
    with pytest.raises(InputError, match=r"run\.h5: is finished, but the stop rules now ask for more"):
        again(out, off, rounds=4)
    assert out.read_bytes() == before


@pytest.mark.parametrize("checkpoints", ["true", "false"])
def test_a_run_that_ended_as_all_sites_had_spent_their_budgets_is_finished(tmp_path, checkpoints, capsys):
    out, spent = tmp_path / "run.h5", ["accounts.site_max_energy='1 J'", f"checkpoint.enabled={checkpoints}"]
    ended = run(out, *spent)
    assert ended.meta["stop_reason"] == "nobody left to ask: site_max_energy = 1 J" and len(ended.rounds) < 4
    before = out.read_bytes()
    again(out, *spent)
    assert out.read_bytes() == before and "is finished already" in capsys.readouterr().out


def test_runs_that_start_together_without_a_name_do_not_share_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {start_new([], settings(), None, False).path for _ in range(3)}
    assert len(paths) == 3 and all(path.startswith("results/demo-") for path in paths)


def test_a_new_run_does_not_overwrite_checkpoints(tmp_path, begun):
    out = tmp_path / "run.h5"
    begun(out, rounds=3)
    out.unlink()
    with pytest.raises(InputError, match=r"run.h5.ckpt0: exists already; resume from it"):
        run(out)
    launching.launch(lambda: start_new([], settings("seed=3", rounds=1), str(out), True))
    assert "seed = 3" in newest(out)[0].input_toml and not (tmp_path / "run.h5.ckpt1").exists()


def test_a_new_run_that_fails_at_its_start_leaves_the_one_that_it_was_to_replace(
    tmp_path, begun, monkeypatch
):
    def fails(*_):
        raise InputError("data", "are gone")

    def replace(*lines):
        launching.launch(lambda: start_new([], settings(*lines, rounds=1), str(out), True))

    out = tmp_path / "run.h5"
    begun(out, rounds=2)
    before = {path: path.read_bytes() for path in (out, *generations(out))}
    monkeypatch.setattr(launching, "train", fails)
    with pytest.raises(InputError, match="data: are gone"):
        replace("seed=3")
    assert {path: path.read_bytes() for path in (out, *generations(out))} == before
    monkeypatch.undo()
    replace("seed=3", "checkpoint.enabled=false")
    assert open_run(out).meta["seed"] == 3 and newest(out) is None


@pytest.fixture
def recording(monkeypatch):
    """`recording(act)`: calls `act(history)` when a round is recorded, during the next one."""
    record = launching.Recorder.record

    def patch(act):
        monkeypatch.setattr(
            launching.Recorder, "record", lambda self, rounds: act(rounds) or record(self, rounds)
        )

    return patch


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_run_after_its_round_with_a_checkpoint(
    tmp_path, undisturbed, monkeypatch, recording, name
):
    out, number = tmp_path / "run.h5", getattr(signal, name)
    recording(lambda history: os.kill(os.getpid(), number) if len(history) == 1 else None)
    with pytest.raises(InterruptedRun, match=f"after round 2: {name} received by rank 0") as caught:
        run(out, "checkpoint.every_rounds=100")
    assert caught.value.exit_code == 85
    assert f"resume with: python -m hpctrip resume {out}" in str(caught.value)
    assert open_run(out).meta["status"] == "interrupted" and newest(out)[0].state.round == 2
    monkeypatch.undo()
    assert_same(resume(out), undisturbed)


def test_ctrl_c_twice_ends_the_run_at_once(tmp_path, recording):
    def twice(history):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    recording(twice)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run.h5", rounds=50)
    assert not (tmp_path / "run.h5.lock").exists()


@pytest.mark.parametrize(
    ("saved", "message"), [(0, "nothing to resume from"), (2, "a resumed run trains all after round 2 again")]
)
def test_an_interrupted_run_without_a_checkpoint_does_not_ask_to_be_started_again(
    tmp_path, begun, saved, message
):
    out, off = tmp_path / "run.h5", ["checkpoint.enabled=false", "interrupt.job_s=0.001"]
    if saved:
        begun(out, rounds=saved)
    with pytest.raises(
        UnsavedRun, match=f"the job ends in .*; {message} .checkpoint.enabled = false"
    ) as left:
        again(out, *off)
    assert left.value.exit_code == 143 and open_run(out).meta["status"] == "interrupted"


def test_without_checkpoints_the_cache_takes_each_start_a_round_further(tmp_path, undisturbed):
    out, lines = tmp_path / "run.h5", ["checkpoint.enabled=false", f"store.path={tmp_path / 'store'}"]
    for rounds in (1, 2, 3):
        with pytest.raises(InterruptedRun, match=r"start it again: its rounds are in .*store"):
            again(out, *lines, "interrupt.job_s=0.001")
        assert len(open_run(out).rounds) == rounds
    assert_same(again(out, *lines), undisturbed)


def test_a_stop_file_ends_the_run_and_stops_the_next_one_until_it_is_removed(
    tmp_path, monkeypatch, recording
):
    out = tmp_path / "run.h5"
    recording(lambda history: stop_file(out).touch())
    with pytest.raises(InterruptedRun, match=r"after round 2: stop file .*run.h5.stop"):
        run(out)
    with pytest.raises(InputError, match=r"run.h5.stop: asks runs .* to stop; remove it"):
        again(out)
    stop_file(out).unlink()
    monkeypatch.undo()
    assert again(out).meta["status"] == "finished"


@pytest.mark.parametrize(
    ("holds", "age_s", "is_command", "refused"),
    [("", -5, True, False), ("", 5, True, True), ("", -5, False, True), ("7\n", 5, True, False)],
    ids=["made while it starts", "older", "in a program that started before", "of this job"],
)
def test_only_a_stop_file_that_was_meant_for_an_earlier_start_is_refused(
    tmp_path, monkeypatch, holds, age_s, is_command, refused
):
    file = stop_file(tmp_path / "run.h5")
    file.write_text(holds)
    os.utime(file, (signals.process.start_time() - age_s,) * 2)
    monkeypatch.setattr(signals.process, "ends_with_run", is_command)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(InputError, match="asks runs") if refused else nullcontext():
        refuse_left_over(tmp_path / "run.h5")


@pytest.mark.parametrize("what", [".h5", ".ckpt"])
def test_a_full_disk_ends_the_run_with_one_line_and_nothing_written_before_is_lost(
    tmp_path, undisturbed, monkeypatch, what
):
    out = tmp_path / "run.h5"
    replace = os.replace

    def full(source, target):
        if what in str(target)[-6:] and newest(out) and newest(out)[0].state.round == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(writer, "WRITE_SHARE", 0)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        HpctripError, match="cannot be written: No space left on device; free some space"
    ) as caught:
        run(out)
    assert caught.value.exit_code == 1 and verify(open_run(out)) == []
    assert str(caught.value).endswith(f"; resume with: python -m hpctrip resume {out}")
    assert len(open_run(out).rounds) >= 2
    monkeypatch.undo()
    assert_same(resume(out), undisturbed)


def test_a_full_disk_without_a_checkpoint_promises_none(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        HpctripError, match=r"No space left on device; free some space or choose another place$"
    ):
        run(tmp_path / "run.h5")


def test_checkpoints_keep_within_their_share_of_the_wall_time(undisturbed, monkeypatch):
    now, row = [0.0], undisturbed.history().last

    def slow(path, data):
        now[0] += 2.0

    monkeypatch.setattr("hpctrip.record.checkpoint.pack", lambda checkpoint: iter([b""]))
    monkeypatch.setattr("hpctrip.record.checkpoint.replace_file", slow)
    rules = Checkpointing(every_s=10, max_fraction=0.01)
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    checkpointer = Checkpointer(rules, "run.h5", "", {})
    saved = []
    for number in range(1, 1001):
        state = State(number, row.clock_s, History((dataclasses.replace(row, round=number),)))
        now[0] += 1.0
        if checkpointer.due(state, over=False):
            checkpointer.save(state, Mock())
            saved.append(state.round)
    assert saved == [10, 210, 410, 610, 810]  # the first after every_s; a cost of 2 s is 1 % of 200 s
    assert checkpointer.due(state, over=True)


@pytest.fixture
def interruption(tmp_path, monkeypatch):
    """`interruption(now, *hosts, **rules)`: that of a process that started at 0; `now` is a list with the time."""

    def build(now, *hosts, **rules):
        monkeypatch.setattr(signals.process, "start_time", lambda: 0.0)
        monkeypatch.setattr(signals, "time", SimpleNamespace(time=lambda: now[0]))
        return Interruption(Interrupt(**rules), tmp_path / "run.h5", hosts or ["here"], Signals())

    return build


def test_a_run_leaves_while_the_job_still_has_time_for_a_few_rounds(interruption, undisturbed, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1000")
    now = [0.0]
    rows = undisturbed.history()
    slowest_s = max(row.wall_s for row in rows.rows)
    judge = interruption(now, margin_rounds=3)
    now[0] = 1000 - 3 * slowest_s - 20.001
    assert judge.reason([0], rows, checkpoint_s=10.0) == ""
    now[0] += 0.002
    assert judge.reason([0], rows, checkpoint_s=10.0).startswith("the job ends in ")


@pytest.mark.parametrize(
    ("begun", "ends_at", "warns"),
    [
        (None, 500, False),  # from the start of this process
        ("-100", 400, False),
        ("-500", 500, True),  # that job had ended before this process started
        ("5", 500, True),  # later than this process
        ("$(date +%s)", 500, True),
    ],
)
def test_the_time_of_a_job_counts_from_its_start(
    interruption, undisturbed, monkeypatch, begun, ends_at, warns
):
    """Preparing the data takes the first 300 s of it."""
    if begun is not None:
        monkeypatch.setenv("HPCTRIP_JOB_START", begun)
    now = [300.0]
    judge = interruption(now, margin_rounds=0, job_s=500)
    assert [note.split(" is ignored")[0] for note in judge.notes] == [
        f"warning: HPCTRIP_JOB_START={begun}"
    ] * warns
    now[0] = ends_at
    assert judge.reason([0], undisturbed.history(), 0.0) == ""
    now[0] += 0.001
    assert judge.reason([0], undisturbed.history(), 0.0).startswith("the job ends in")


@pytest.mark.parametrize("end", ["0", "1000", "soon", "nan"])
def test_an_end_of_the_job_that_cannot_be_is_ignored_with_a_warning(
    tmp_path, undisturbed, monkeypatch, capsys, end
):
    monkeypatch.setenv("SLURM_JOB_END_TIME", end)
    assert_same(run(tmp_path / "run.h5"), undisturbed)
    assert capsys.readouterr().out.count(f"warning: SLURM_JOB_END_TIME={end} is ignored") == 1


def test_a_job_too_short_for_its_margin_gets_a_round_further_with_each_start(tmp_path, undisturbed):
    out, reached = tmp_path / "run.h5", []
    while not reached or reached[-1] < 3:
        with pytest.raises(InterruptedRun, match="the job ends in") as left:
            again(out, "interrupt.job_s=0.001")
        assert left.value.exit_code == 85
        reached.append(newest(out)[0].state.round)
    assert reached == [1, 2, 3]
    assert_same(again(out), undisturbed)


def test_a_signal_before_the_first_round_of_a_start_ends_it_after_that(tmp_path, monkeypatch, capsys):
    """With code 85 goes a checkpoint, and a script that starts the run again gets further."""
    holding, out = launching.holding, tmp_path / "run.h5"

    def signalled(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        return holding(*args)

    monkeypatch.setattr(launching, "holding", signalled)
    for number in (1, 2):
        with pytest.raises(InterruptedRun, match=f"after round {number}: SIGTERM received by rank 0"):
            again(out)
        assert newest(out)[0].state.round == number
        assert (
            "asked to stop before the first round: the run ends once it is a round further (SIGTERM"
            in capsys.readouterr().out
        )


def test_a_signal_at_another_rank_is_named_with_its_host(interruption, undisturbed):
    judge = interruption([0.0], "a", "b", "c")
    why = judge.reason([0, 0, signal.SIGTERM], undisturbed.history(), 0.0)
    assert why == "SIGTERM received by rank 2 on c"


def test_a_signal_in_the_last_moments_changes_no_exit_code(tiny, tmp_path):
    """Its results are whole by then, and a job script acts on the code. Two processes, forked after the imports."""
    program = """
import atexit, os, signal, sys
from hpctrip.cli.main import main
from hpctrip.runner.preload import preload
preload()
ends = sys.argv.pop()
for name, lines in ("finished", []), ("interrupted", ["-o", "interrupt.job_s=0.001"]):
    if not (child := os.fork()):
        for number in (signal.SIGTERM, signal.SIGINT):
            atexit.register(os.kill, os.getpid(), number)
        sys.argv += [*lines, "--out", f"{ends}/{name}.h5"]
        main()
    print("ended", name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    command = [sys.executable, "-c", program, "run", tiny, tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert {line for line in ended.stdout.splitlines() if line.startswith("ended")} == {
        "ended finished 0",
        "ended interrupted 85",
    }, ended
    for name in ("finished", "interrupted"):
        assert open_run(tmp_path / f"{name}.h5").status == name


def test_handlers_only_set_a_flag_and_are_put_back():
    before = signal.getsignal(signal.SIGUSR2)
    with Signals(["SIGUSR2"]) as signals:
        assert signals.received == 0
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.01)
        assert signals.received == signal.SIGUSR2
    assert signal.getsignal(signal.SIGUSR2) is before


def test_handlers_of_c_code_are_put_back_whether_python_knows_of_them_or_not():
    """That of SIGABRT is older than Python's table of handlers, which has None for it; that of SIGUSR2 is younger."""
    code = """
import ctypes, os, signal
from hpctrip.runner.signals import Signals
libc, received = ctypes.CDLL(None), []
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(received.append)
libc.signal(signal.SIGUSR2, handler)
def installed():
    action = ctypes.create_string_buffer(1024)
    return [libc.sigaction(number, None, action) or action.raw[:8] for number in (signal.SIGABRT, signal.SIGUSR2)]
before = installed()
assert signal.getsignal(signal.SIGABRT) is None
with Signals(["SIGABRT", "SIGUSR2"]) as signals:
    os.kill(os.getpid(), signal.SIGABRT)
    assert signals.received == signal.SIGABRT and not received
assert installed() == before
os.kill(os.getpid(), signal.SIGUSR2)
assert received == [signal.SIGUSR2]
"""
    subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], check=True)
