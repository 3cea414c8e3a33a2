"""The cache of trained rounds: rounds are taken from it bit for bit, and none is trained twice.

Rounds are counted where hosts train them. Everything runs in this process, but for what needs two.
"""

import os
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from hpctrip.base.errors import InputError, InterruptedRun
from hpctrip.ranks.base import Phase
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner import session as launching
from hpctrip.runner.cache import lookup, trajectory
from hpctrip.runner.cache.trajectory import CacheFiles
from hpctrip.runner.host import Host
from hpctrip.runner.resume import start_resumed
from hpctrip.runner.session import start_new
from hpctrip.sim.flights import RoundTimes
from hpctrip.sim.policies import POLICIES, Decision, Policy

ROUNDS = 6
TINY = [
    "sites.num_sites=6",
    "workload.train_samples=60",
    "workload.test_samples=40",
    "evaluate.batch_size=20",
    "stop.target_accuracy=1.0",
    "policy.kind=turning",
    "store.keep_every=3",
    "watchdog.enabled=false",
]
OTHER_WORLD = [
    "timing.clock=mean-power",
    "timing.seconds_per_sample=1.5",
    "network.bandwidth_law=inverse",
    "power.kind=constant",
    "network.update_bytes=1e6",
    "profiler.power_noise=0.1",
]


class Turning(Policy):
    """Two sites, and from round `turn` on three."""

    kind = "turning"
    turn: int = 99

    def select(self, sites, history, rng):
        return Decision(np.arange(2 if len(history) + 1 < self.turn else 3))


@pytest.fixture(scope="module", autouse=True)
def turning():
    """The policy is known while these tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, Turning.kind, Turning)
        yield


@pytest.fixture
def trained(monkeypatch):
    """The rounds that hosts train, in their order."""
    rounds, train = [], Host.train

    def counted(host, params, assignment):
        rounds.append(assignment.round)
        return train(host, params, assignment)

    monkeypatch.setattr(Host, "train", counted)
    return rounds


def run(out, *lines, store=None, rounds=ROUNDS):
    """The run of the tiny input with these lines; its results file, which must be sound."""
    path = [f"store.path='{store}'"] if store else []
    arguments = [*TINY, f"stop.max_rounds={rounds}", *path, *lines]
    launching.launch(lambda: start_new([], arguments, str(out), False), quiet=False)
    found = open_run(out)
    assert verify(found) == []
    return found


@pytest.fixture(scope="module")
def first(turning, tmp_path_factory):
    """(a run that filled a store, the store)."""
    folder = tmp_path_factory.mktemp("first")
    return run(folder / "run.h5", store=folder / "store"), folder / "store"


@pytest.fixture
def store(first, tmp_path):
    """A copy of what the first run left."""
    return shutil.copytree(first[1], tmp_path / "store")


def rounds_in(store):
    return sorted(store.glob("??/*.round"))


def test_a_run_leaves_its_rounds_and_models_and_says_how_many_it_took(first):
    found, store = first
    assert len(rounds_in(store)) == ROUNDS and len(list(store.glob("??/*.state"))) == 2
    assert found.meta["stored_rounds"] == 0 and len(found.meta["learning_key"]) == 32


def test_the_same_run_again_trains_nothing(first, store, tmp_path, trained, capsys):
    again = run(tmp_path / "again.h5", store=store)
    assert trained == [] and diff(first[0], again) == []
    assert (
        again.meta["stored_rounds"] == ROUNDS and again.meta["learning_key"] == first[0].meta["learning_key"]
    )
    assert f"taken from {store}: rounds 1 to {ROUNDS}\n" in capsys.readouterr().out
    assert again.rounds["wall_s"].tolist() == [0.0] * ROUNDS
    assert (tmp_path / "again.h5.ckpt0").exists()  # the model is here too, to go on from


@pytest.mark.parametrize("policy", ["{kind = 'goodput', local_work = 'adaptive'}", "{kind = 'oort', k = 3}"])
def test_a_policy_that_looks_at_what_training_tells_decides_alike_over_rounds_that_are_taken(
    policy, tmp_path, trained
):
    lines = [f"policy={policy}"]
    alone = run(tmp_path / "alone.h5", *lines)
    run(tmp_path / "first.h5", *lines, store=tmp_path / "store", rounds=4)
    trained.clear()
    taken = run(tmp_path / "taken.h5", *lines, store=tmp_path / "store")
    assert trained == [5, 6] and taken.meta["stored_rounds"] == 4
    assert diff(alone, taken) == [] and taken.cohorts["update_norm"].gt(0).all()
    assert taken.rounds["update_signal"].notna().all()


def test_a_run_in_another_world_with_the_same_cohorts_trains_nothing(first, store, tmp_path, trained):
    alone = run(tmp_path / "alone.h5", *OTHER_WORLD)
    assert trained == [1, 2, 3, 4, 5, 6]
    taken = run(tmp_path / "taken.h5", *OTHER_WORLD, store=store)
    assert len(trained) == ROUNDS and diff(alone, taken) == []
    assert diff(first[0], taken) != []


def test_from_a_different_cohort_on_it_trains_from_the_last_cached_model(store, tmp_path, trained):
    alone = run(tmp_path / "alone.h5", "policy.turn=6")
    trained.clear()
    parted = run(tmp_path / "parted.h5", "policy.turn=6", store=store)
    # round 6 is new; the last model on the way is that after round 3
    assert trained == [4, 5, 6] and diff(alone, parted) == []
    assert parted.meta["stored_rounds"] == 3
    trained.clear()
    # the model where it parted was kept: who parts there again needs no more
    longer = run(tmp_path / "longer.h5", "policy.turn=6", store=store, rounds=7)
    assert trained == [7] and longer.meta["stored_rounds"] == 6
    trained.clear()
    lost = ("faults.deadline_s=1e6", "faults.lost_fraction=0.5")
    run(tmp_path / "dropped.h5", "policy.turn=6", *lost, store=store)
    assert trained[0] == 1  # other updates arrive: other learning, whatever the cohorts


LEARNERS = [
    "server.kind=fedadam",
    "compression.kind=top-k",
    "train.optimizer=adamw",
    "train.keep_optimizer=true",
]


def test_states_of_server_and_sites_continue_from_a_cached_model(tmp_path, trained):
    store = tmp_path / "store"
    run(tmp_path / "first.h5", *LEARNERS, store=store)
    alone = run(tmp_path / "alone.h5", *LEARNERS, "policy.turn=5")
    trained.clear()
    parted = run(tmp_path / "parted.h5", *LEARNERS, "policy.turn=5", store=store)
    assert trained == [4, 5, 6] and diff(alone, parted) == []


def test_faults_matter_only_by_the_updates_that_arrive(tmp_path, trained):
    store = tmp_path / "store"
    faults = ["faults.deadline_s=1000", "faults.lost_fraction=0.4", "policy.turn=1"]
    first = run(tmp_path / "first.h5", *faults, store=store)
    assert first.rounds["num_arrived"].min() < 3
    trained.clear()
    late = [*faults[1:], "faults.deadline_s=900", "timing.seconds_per_sample=0.01"]
    taken = run(tmp_path / "taken.h5", *late, store=store)
    assert trained == [] and diff(run(tmp_path / "alone.h5", *late), taken) == []


def test_rounds_without_any_update_are_cached(tmp_path, trained):
    lost = ["faults.deadline_s=1000", "faults.lost_fraction=1"]
    first = run(tmp_path / "first.h5", *lost, store=tmp_path / "store", rounds=2)
    again = run(tmp_path / "again.h5", *lost, store=tmp_path / "store", rounds=2)
    assert trained == [1, 2] and diff(first, again) == []


def test_a_resumed_run_goes_on_with_what_others_trained_meanwhile(first, store, tmp_path, trained):
    half = tmp_path / "half.h5"
    run(half, rounds=2)
    trained.clear()
    more = [f"stop.max_rounds={ROUNDS}", f"store.path='{store}'"]
    launching.launch(lambda: start_resumed(str(half), [], more, None))
    assert trained == [] and diff(first[0], open_run(half)) == []
    assert open_run(half).meta["stored_rounds"] == ROUNDS - 2


def test_rounds_trained_on_another_machine_neither_use_nor_fill_the_store(
    store, tmp_path, trained, monkeypatch, capsys
):
    half = tmp_path / "half.h5"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("hpctrip.learn.params.arithmetic", lambda device: "other kernels")
        run(half, rounds=2)
    trained.clear()
    more = ["stop.max_rounds=3", f"store.path='{store}'"]
    launching.launch(lambda: start_resumed(str(half), [], more, None))
    assert trained == [3] and len(rounds_in(store)) == ROUNDS
    assert (
        "the cache is not used: the rounds so far were trained with another hpctrip"
        in capsys.readouterr().out
    )
    assert open_run(half).meta["learning_key"] == ""


def test_a_round_that_is_to_be_evaluated_and_was_not_is_trained_again(tmp_path, trained):
    store, rarely = tmp_path / "store", "evaluate.every_rounds=2"
    seldom = run(tmp_path / "seldom.h5", rarely, store=store, rounds=4)
    trained.clear()
    often = run(tmp_path / "often.h5", store=store, rounds=4)
    assert trained == [1, 2, 3, 4] and often.rounds["accuracy"].notna().all()
    trained.clear()
    assert diff(seldom, run(tmp_path / "again.h5", rarely, store=store, rounds=4)) == []
    assert trained == []


def test_runs_with_measured_compute_times_do_not_use_the_store(tmp_path, trained, capsys):
    measured = run(tmp_path / "run.h5", "timing.compute=measured", store=tmp_path / "store", rounds=2)
    assert trained == [1, 2] and measured.meta["stored_rounds"] == 0
    assert not (tmp_path / "store").exists()
    assert capsys.readouterr().out.count('note: timing.compute = "measured"') == 1


def test_a_fully_cached_run_without_checkpoints_needs_no_model(first, store, tmp_path, trained):
    for file in store.glob("??/*.state"):
        file.unlink()
    again = run(tmp_path / "again.h5", "checkpoint.enabled=false", store=store)
    assert trained == [] and diff(first[0], again) == []
    again = run(tmp_path / "with.h5", store=store)
    assert trained == [1, 2, 3, 4, 5, 6] and diff(first[0], again) == []


@pytest.mark.parametrize("damage", ["cut short", "of another round"])
def test_a_damaged_or_foreign_round_is_trained_again_and_reported_once(
    first, store, tmp_path, trained, capsys, damage
):
    key = key_of_round(first[0], 5)
    file = store / key[:2] / f"{key[2:]}.round"
    if damage == "cut short":
        file.write_bytes(file.read_bytes()[:-7])
    else:
        other = next(path for path in rounds_in(store) if path != file)
        file.write_bytes(other.read_bytes())
    again = run(tmp_path / "again.h5", store=store)
    assert trained == [4, 5, 6] and diff(first[0], again) == []
    assert capsys.readouterr().out.count(f"warning: {file} ") == 1


def test_a_damaged_model_is_passed_over_for_the_one_before(store, tmp_path, trained, capsys):
    *_, last = sorted(store.glob("??/*.state"), key=lambda path: path.stat().st_mtime_ns)
    last.write_bytes(last.read_bytes()[:-1])
    run(tmp_path / "again.h5", store=store)
    assert trained == [4, 5, 6]
    assert f"warning: {last} is damaged" in capsys.readouterr().out


def key_of_round(run, round):
    """The key of a round of a run in which all shards count by their size and every update arrived."""
    key, samples = run.meta["learning_key"], run.sites["num_samples"].to_numpy()
    for row in run.history().rows[:round]:
        shares = samples[row.cohort.site].astype(float)
        key = trajectory.key_after(key, RoundTimes.recorded(row), shares / shares.sum())
    return key


def test_a_store_may_vanish_while_it_is_used(first, store, tmp_path, trained, monkeypatch):
    train = Host.train

    def vanishing(host, params, assignment):
        if assignment.round == 3:
            shutil.rmtree(store)
        return train(host, params, assignment)

    shutil.rmtree(store)
    monkeypatch.setattr(Host, "train", vanishing)
    assert diff(first[0], run(tmp_path / "run.h5", store=store)) == []
    assert len(rounds_in(store)) == 4  # from the one on that was in progress


def test_a_store_that_cannot_be_written_any_more_is_left_alone(first, tmp_path, trained, monkeypatch, capsys):
    write_round = CacheFiles.write_round

    def full(files, key, cached):
        if cached.row.round == 3:
            raise InputError("store", "cannot be written: No space left on device")
        write_round(files, key, cached)

    monkeypatch.setattr(CacheFiles, "write_round", full)
    assert diff(first[0], run(tmp_path / "run.h5", store=tmp_path / "store")) == []
    assert len(rounds_in(tmp_path / "store")) == 2
    assert capsys.readouterr().out.count("warning: the cache is no longer filled: store: cannot") == 1


def test_a_run_that_is_killed_while_it_writes_leaves_nothing_half(first, tmp_path, trained, monkeypatch):
    class Killed(BaseException):
        pass

    store, replace = tmp_path / "store", os.replace

    def die(source, target):
        if str(target).endswith(".round") and len(rounds_in(store)) == 4:
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(Killed):
            run(tmp_path / "run.h5", store=store)
    assert len(rounds_in(store)) == 4
    trained.clear()
    assert diff(first[0], run(tmp_path / "again.h5", store=store)) == []
    assert trained == [4, 5, 6]  # from the model after round 3


class Rival:
    """Another run that trains a round, which is missing until it is done."""

    def __init__(self, store, key):
        self.files = CacheFiles(store, print)
        self.key, self.path = key, store / key[:2] / f"{key[2:]}.round"
        self.data = self.path.read_bytes()
        self.path.unlink()
        assert self.files.locks.take(key)

    def finish(self):
        self.path.write_bytes(self.data)
        self.files.locks.give_back(self.key)

    def end(self):
        """However it ends: the system gives back what it had."""
        self.files.locks.close()


@pytest.fixture
def waited(monkeypatch):
    """`waited(act)`: what happens in the third pause of a run that waits; returns the pauses so far."""
    pauses_s, acts = [], []

    def sleep(seconds):
        pauses_s.append(seconds)
        if len(pauses_s) == 3:
            acts[0]()

    def then(act):
        acts.append(act)
        return pauses_s

    monkeypatch.setattr(lookup, "time", SimpleNamespace(sleep=sleep))
    return then


@pytest.mark.parametrize("finishes", [True, False])
def test_a_run_waits_for_a_round_that_another_run_trains_until_that_finishes_or_ends(
    first, store, tmp_path, trained, waited, capsys, finishes
):
    rival = Rival(store, key_of_round(first[0], 5))
    pauses_s = waited(rival.finish if finishes else rival.end)
    again = run(tmp_path / "again.h5", store=store)
    assert trained == ([] if finishes else [4, 5, 6]) and diff(first[0], again) == []
    assert pauses_s == [0.01, 0.02, 0.04]
    assert capsys.readouterr().out.count("waiting for round 5, which another run trains") == 1
    rival.end()


def test_waiting_ends_at_a_signal_and_keeps_the_watchdog_informed(
    first, store, tmp_path, trained, waited, monkeypatch
):
    rival, entered, enter = Rival(store, key_of_round(first[0], 5)), [], Phase.enter
    monkeypatch.setattr(Phase, "enter", lambda self, *phase: entered.append(phase) or enter(self, *phase))
    seen = []

    def interrupt():
        seen.append(entered[-1])
        os.kill(os.getpid(), signal.SIGTERM)

    waited(interrupt)
    with pytest.raises(InterruptedRun, match="interrupted after round 3: SIGTERM received by rank 0"):
        run(tmp_path / "run.h5", store=store)
    assert seen == [("cache", 5)] and trained == []
    rival.finish()
    launching.launch(lambda: start_resumed(str(tmp_path / "run.h5"), [], [f"store.path='{store}'"], None))
    assert trained == [] and diff(first[0], open_run(tmp_path / "run.h5")) == []
    rival.end()


def test_a_retrained_round_with_other_bits_is_reported(store, tmp_path, trained, monkeypatch, capsys):
    monkeypatch.setattr("hpctrip.runner.loop.digest", lambda params: "0" * 16)
    run(tmp_path / "run.h5", "policy.turn=6", store=store)
    assert trained == [4, 5, 6]
    assert capsys.readouterr().out.count("warning: round 4, trained again, differs") == 1


def test_two_runs_at_once_on_one_store_train_every_round_once(tmp_path, tiny, launch):
    arguments = ("run", tiny, "--store", tmp_path / "store", "-o", "stop.max_rounds=5")
    ended = launch.together(tmp_path, *((*arguments, "--out", tmp_path / f"{name}.h5") for name in "ab"))
    assert [each.code for each in ended] == [0, 0], ended
    a, b = (open_run(tmp_path / f"{name}.h5") for name in "ab")
    assert diff(a, b) == []
    assert a.meta["stored_rounds"] + b.meta["stored_rounds"] == 5


@pytest.mark.mpi
def test_rounds_and_site_states_are_shared_between_numbers_of_ranks(tmp_path, tiny, hpctrip, launch):
    lines = [part for line in ("compression.kind=top-k", "store.keep_every=1") for part in ("-o", line)]
    arguments = ("run", tiny, *lines, "--store", tmp_path / "store")
    assert hpctrip(*arguments, "--out", tmp_path / "one.h5").code == 0
    ended = launch(3, *arguments, "-o", "stop.max_rounds=5", "--out", tmp_path / "three.h5")
    assert ended.code == 0, ended.err
    three = open_run(tmp_path / "three.h5")
    assert three.meta["stored_rounds"] == 3 and three.meta["num_ranks"] == 3
    assert hpctrip("run", tiny, *lines, "-o", "stop.max_rounds=5", "--out", tmp_path / "alone.h5").code == 0
    assert diff(open_run(tmp_path / "alone.h5"), three) == []
    # and the other way round
    again = hpctrip(*arguments, "-o", "stop.max_rounds=5", "--out", tmp_path / "again.h5")
    assert again.code == 0 and open_run(tmp_path / "again.h5").meta["stored_rounds"] == 5


def test_the_store_stays_within_its_bound(first, tmp_path, trained):
    store = tmp_path / "store"
    one = max(path.stat().st_size for path in first[1].glob("??/*.state"))
    bound = 2.5 * one
    for turn in (2, 4, 6):
        run(tmp_path / f"{turn}.h5", f"policy.turn={turn}", f"store.max_gb={bound / 1e9}", store=store)
        total = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        assert total <= bound
    assert len(list(store.glob("??/*.state"))) == 2
    assert len(rounds_in(store)) == 6 + 5 + 2 + 1  # of these nothing had to go
