"""Cached rounds and models are read as they were written, or not at all."""

import errno
import hashlib
import math
import os
import time
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpctrip.record.checkpoint import Model, history_arrays
from hpctrip.runner.cache import trajectory
from hpctrip.runner.cache.trajectory import (
    CachedRound,
    CacheFiles,
    KeyLocks,
    key_after,
    shrink,
)
from hpctrip.sim.flights import Flights, RoundTimes
from hpctrip.sim.rounds import History, Status

ROOT = "00" * 16
KEY = "ab" * 16


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def files(tmp_path, warnings):
    return CacheFiles(tmp_path / "store", warnings.append)


@pytest.fixture(scope="module")
def cached_round(trained):
    """The first round of a run, some of whose updates were lost."""
    run = trained("faults.lost_fraction=0.4", "faults.deadline_s=1e6", "policy.kind=all", "stop.max_rounds=1")
    return CachedRound(run.history().rows[0], "0123456789abcdef")


def cached_model(num_params=5):
    rows = {3: np.ones(2, dtype=np.float32), 12: np.zeros(2, dtype=np.float32)}
    params = np.arange(num_params, dtype=np.float32) / 3
    return Model(params, np.ones((2, num_params)) / 7, rows)


def times(round, sites, **others):
    """The times of a round in which these sites start and arrive, unless `others` say otherwise."""
    fields = {"site": sites, "version": round - 1, "start_s": 0.0, "compute_s": 1.0, "comm_s": 1.0}
    fields = (
        fields | {"local_work": 1, "status": Status.ARRIVED, "queue_s": 0.0, "uplink_free_s": np.nan} | others
    )
    columns = np.broadcast_arrays(*(np.array(values) for values in fields.values()))
    return RoundTimes(round, 0.0, 2.0, Flights(*columns))


def test_the_key_of_a_round_depends_on_its_training_and_not_on_the_order_of_sites():
    def key(before, round, sites, weights, local_work=1, **others):
        return key_after(before, times(round, sites, **others), np.array(weights), local_work)

    usual = key(ROOT, 1, [4, 2, 9], [0.5, 0.2, 0.3])
    assert usual == key(ROOT, 1, [9, 4, 2], [0.3, 0.5, 0.2])
    assert usual == "41fd2705c0ba40ab536bbde5a7088905"  # that of rounds cached before there were flights
    late, old = [Status.ARRIVED, Status.ARRIVED, Status.UNDER_WAY], [0, 0, -1]
    others = [
        key(KEY, 1, [4, 2, 9], [0.5, 0.2, 0.3]),
        key(ROOT, 2, [4, 2, 9], [0.5, 0.2, 0.3]),
        key(ROOT, 1, [4, 2, 8], [0.5, 0.2, 0.3]),
        key(ROOT, 1, [4, 2, 9], [0.5, 0.3, 0.2]),
        key(ROOT, 1, [4, 2], [0.5, 0.5]),
        key(ROOT, 1, [], []),
        key(ROOT, 1, [4, 2, 9], [0.5, 0.2, 0.3], local_work=2),
        key(ROOT, 1, [4, 2, 9], [0.5, 0.5, 0.0], status=late),
        key(ROOT, 1, [4, 2, 9], [0.5, 0.2, 0.3], version=old),
        key(ROOT, 1, [4, 2, 9], [0.5, 0.2, 0.3], version=[-1, 0, 0]),
    ]
    assert len({usual, *others}) == 1 + len(others) and all(len(other) == 32 for other in others)


@pytest.mark.parametrize("changed", [{}, {"eval_seen": 0, "eval_correct": 0, "eval_loss": math.nan}])
def test_a_round_comes_back_in_every_bit(files, cached_round, changed):
    written = replace(cached_round, row=replace(cached_round.row, **changed))
    files.write_round(KEY, written)
    found = files.round(KEY)
    assert found.params_digest == written.params_digest
    expected = history_arrays(History((replace(written.row, candidates=None),)))
    actual = history_arrays(History((found.row,)))
    assert actual.keys() == expected.keys()
    assert all(actual[name].tobytes() == expected[name].tobytes() for name in expected)
    assert files.round("cd" * 16) is None and files.model(KEY) is None


def test_the_outcome_of_a_cached_round_follows_the_order_of_the_cohort(cached_round):
    cohort = cached_round.row.cohort
    order = np.argsort(-cohort.site)
    arriving = np.flatnonzero(cohort.status[order] == Status.ARRIVED)
    draft = Mock(cohort=cohort.site[order], times=times(1, cohort.site[order], status=cohort.status[order]))
    outcome = cached_round.outcome(draft, evaluated=False)
    assert 0 < len(arriving) < len(order) and outcome.eval_seen == 0
    assert outcome.train_loss[arriving].tolist() == cohort.train_loss[order][arriving].tolist()
    assert np.isnan(outcome.train_loss).sum() == len(order) - len(arriving)
    assert cached_round.outcome(draft, evaluated=True).eval_seen == cached_round.row.eval_seen > 0


def test_a_model_comes_back_with_all_that_is_needed_to_train_on(files):
    files.write_model(KEY, cached_model())
    found = files.model(KEY)
    assert files.has_model(KEY) and found.params.tobytes() == cached_model().params.tobytes()
    assert found.slots.tobytes() == cached_model().slots.tobytes() and sorted(found.site_states) == [3, 12]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_counts_as_missing(files, cached_round, data):
    files.write_round(KEY, cached_round), files.write_model(KEY, cached_model())
    suffix = data.draw(st.sampled_from(["round", "state"]))
    path = files.folder / "ab" / f"{'ab' * 15}.{suffix}"
    whole = path.read_bytes()
    body = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    path.write_bytes(body)
    found = files.round(KEY) if suffix == "round" else files.model(KEY)
    assert (found is None) == (body != whole)


def test_a_lock_excludes_others_until_it_is_released(tmp_path):
    one, other = KeyLocks(tmp_path / "folder" / "locks"), KeyLocks(tmp_path / "folder" / "locks")
    assert one.take(KEY) and one.take(KEY) and not other.take(KEY)
    assert other.take(ROOT) and not one.take(ROOT)
    one.give_back(KEY)
    assert other.take(KEY)
    other.close()
    assert one.take(KEY) and one.take(ROOT) and one.trouble == ""


def test_a_new_lock_file_has_no_locks_of_the_removed_one(tmp_path):
    one, other = KeyLocks(tmp_path / "locks"), KeyLocks(tmp_path / "locks")
    assert one.take(KEY)
    (tmp_path / "locks").unlink()
    assert other.take(KEY)
    assert not one.take(KEY)


def test_on_a_file_system_without_locks_every_lock_is_free(tmp_path, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(trajectory.fcntl, "fcntl", refuses)
    one, other = KeyLocks(tmp_path / "locks"), KeyLocks(tmp_path / "locks")
    assert one.take(KEY) and other.take(KEY) and "(No locks available)" in other.trouble


def keys():
    return [hashlib.blake2b(bytes([i]), digest_size=16).hexdigest() for i in range(8)]


def test_models_are_removed_before_rounds_least_recently_used_first(files, cached_round):
    for age, key in enumerate(keys()):
        files.write_round(key, cached_round), files.write_model(key, cached_model(20_000))
        for path in files.folder.glob(f"??/{key[2:]}.*"):
            os.utime(path, (1000 - age, 1000 - age))
    files.model(keys()[-1])  # used now
    one = max(path.stat().st_size for path in files.folder.glob("??/*.state"))
    shrink(files.folder, 8.9 * one)
    assert len(list(files.folder.glob("??/*.state"))) == 8  # within the bound: nothing goes
    shrink(files.folder, 4 * one)
    left = [key for key in keys() if files.has_model(key)]
    assert left == [keys()[0], keys()[1], keys()[7]]
    assert len(list(files.folder.glob("??/*.round"))) == 8
    shrink(files.folder, 1.5 * max(path.stat().st_size for path in files.folder.glob("??/*.round")))
    assert not any(map(files.has_model, keys()))
    assert [key for key in keys() if files.round(key)] == keys()[:1]


def test_only_files_with_names_of_the_cache_are_removed(files):
    files.write_model(KEY, cached_model())
    (files.folder / "notes").mkdir()
    others = [files.folder / "run.h5", files.folder / "notes" / "x.round", files.folder / "ab" / "x.state"]
    tmp = files.folder / "ab" / f"{'ab' * 15}.state.{'0' * 16}.tmp"
    old = files.folder / "ab" / f"{'ab' * 15}.state.{'1' * 16}.tmp"
    for path in (*others, tmp, old):
        path.write_bytes(bytes(1000))
    os.utime(old, (0, time.time() - trajectory.LEFTOVER_S - 1))
    shrink(files.folder, 0)
    assert all(path.exists() for path in others) and tmp.exists()
    assert not old.exists() and not files.has_model(KEY)


def test_room_is_made_at_the_start_and_not_after_every_file(tmp_path, warnings, monkeypatch):
    looked = []
    monkeypatch.setattr(trajectory, "shrink", lambda folder, most: looked.append(most))
    files = CacheFiles(tmp_path / "store", warnings.append, 1e6)
    files.make_room()
    files.make_room()
    assert looked == [1e6]
    for _ in range(2):  # each more than half of LOOK_EVERY
        files.write_model(KEY, cached_model(num_params=500))
    assert looked == [1e6] * 2
