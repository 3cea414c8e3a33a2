"""A checkpoint proves itself whole or is not used; two generations make sure that one of them is."""

import dataclasses
import hashlib
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpctrip.base.errors import InputError
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.checkpoint import Checkpoint, Model, generations, newest, pack, read, unpack, write
from hpctrip.record.reader import open_run
from hpctrip.sim.rounds import History
from hpctrip.sim.step import State


@pytest.fixture(scope="session")
def state(fake_history):
    def make(rounds=3, num_slots=1, site_states=None):
        history = fake_history(rounds, 5)
        return Checkpoint(
            State(rounds, history.last.clock_s if history.last else 0.0, history),
            Model(
                np.arange(7, dtype=np.float32) / 3,
                np.arange(7 * num_slots, dtype=np.float64).reshape(num_slots, 7) / 7,
                site_states or {},
            ),
            input_toml='name = "made-up"\n',
            metadata={"starts": ["after round 0: today, 3 ranks"]},
        )

    return make


def packed(checkpoint):
    return b"".join(pack(checkpoint))


def same(one, two):
    """Equal in every bit, NaNs included: the bytes of a checkpoint are a function of what it holds."""
    return packed(one) == packed(two)


@pytest.mark.parametrize("num_slots", [0, 1, 2])
def test_a_checkpoint_is_read_as_it_was_written(tmp_path, state, num_slots):
    written = state(num_slots=num_slots)
    actual = read(write(tmp_path / "run.h5", written))
    assert same(actual, written)
    assert actual.model.params.tobytes() == written.model.params.tobytes()
    assert actual.model.slots.shape == (num_slots, 7)
    last, expected = actual.state.history.last, written.state.history.last
    assert last.cohort.site.tolist() == expected.cohort.site.tolist()
    assert actual.metadata == written.metadata and actual.state.clock_s == written.state.clock_s


def test_site_states_are_read_by_site_and_are_optional(state):
    rows = {12: np.arange(7, dtype=np.float32), 3: -np.ones(7, dtype=np.float32)}
    written = state(site_states=rows)
    actual = unpack(packed(written), "it")
    states = actual.model.site_states
    assert same(actual, written) and sorted(states) == [3, 12]
    assert all(states[site].tobytes() == row.tobytes() for site, row in rows.items())
    assert unpack(packed(state()), "it").model.site_states == {} and b"kept" not in packed(state())


def test_a_round_without_candidates_or_evaluation_comes_back_as_it_was(state):
    one = state()
    rows = one.state.history.rows
    odd = dataclasses.replace(rows[-1], candidates=None, accuracy=float("nan"), eval_seen=0)
    without = dataclasses.replace(one.state, history=History((*rows[:-1], odd)))
    row = unpack(packed(dataclasses.replace(one, state=without)), "it").state.history.last
    assert row.candidates is None and np.isnan(row.accuracy) and row.eval_seen == 0


def test_no_array_of_a_model_is_copied_to_be_written(state):
    saved = state()
    written = [np.asarray(piece) for piece in pack(saved) if isinstance(piece, memoryview)]
    for array in (saved.model.params, saved.model.slots):
        assert any(np.shares_memory(piece, array) for piece in written)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_flipped_bit_and_truncation_is_refused(state, data):
    whole = packed(state())
    if data.draw(st.booleans(), label="truncate"):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
        damaged = whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]
    with pytest.raises(InputError, match=r"^run.h5.ckpt0: "):
        unpack(damaged, "run.h5.ckpt0")


def test_a_checkpoint_of_another_layout_is_one_line_that_names_its_writer(state):
    made_with = {"made_with": {"hpctrip_version": "0.9.1"}}
    body = b"HPCTRIP\x09" + packed(dataclasses.replace(state(), metadata=made_with))[8:-32]
    with pytest.raises(
        InputError, match=r"has layout 9, written by hpctrip 0\.9\.1; this hpctrip reads layout 2"
    ):
        unpack(body + hashlib.blake2b(body, digest_size=32).digest(), "new")


def test_generations_alternate_and_the_newest_is_found_by_its_round(tmp_path, state):
    out = tmp_path / "run.h5"
    paths = [None]
    for rounds in (1, 2, 3):
        paths.append(write(out, state(rounds), paths[-1]))
    assert [path.name for path in paths[1:]] == ["run.h5.ckpt0", "run.h5.ckpt1", "run.h5.ckpt0"]
    actual, path, faults = newest(out)
    assert (actual.state.round, path.name, faults) == (3, "run.h5.ckpt0", [])


def test_a_damaged_newest_is_named_and_the_one_before_is_used_and_kept(tmp_path, state):
    out = tmp_path / "run.h5"
    hurt = write(out, state(2), write(out, state(1)))
    hurt.write_bytes(hurt.read_bytes()[:-1])
    actual, path, faults = newest(out)
    assert actual.state.round == 1 and path.name == "run.h5.ckpt0"
    assert len(faults) == 1 and "run.h5.ckpt1: is damaged" in faults[0]
    assert write(out, state(2), path) == hurt  # the intact one is not replaced
    assert newest(out)[0].state.round == 2


def test_two_damaged_generations_are_an_error_that_names_both_and_none_at_all_is_none(tmp_path, state):
    out = tmp_path / "run.h5"
    assert newest(out) is None
    for path in generations(out):
        path.write_bytes(b"HPCTRIP\x01")
    with pytest.raises(InputError) as caught:
        newest(out)
    assert "ckpt0: is damaged" in str(caught.value) and "ckpt1: is damaged" in str(caught.value)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_process_killed_while_writing_leaves_the_newest_unchanged(tmp_path, state, monkeypatch, step):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    out = tmp_path / "run.h5"
    newer = write(out, state(2), write(out, state(1)))
    monkeypatch.setattr(os, step, die)
    with pytest.raises(Killed):
        write(out, state(3), newer)
    assert newest(out)[0].state.round == 2


def test_reading_a_file_executes_nothing(tmp_path, state, run_file):
    path = tmp_path / "run.h5.ckpt0"
    path.write_bytes(packed(state(3)))
    watching, seen = [], []

    def hook(event, arguments):
        if watching and event in ("exec", "compile", "import", "pickle.find_class", "marshal.loads"):
            seen.append((event, str(arguments)[:80]))

    def reading():
        read(path), open_run(run_file).history()

    reading()  # what is imported late is imported now
    sys.addaudithook(hook)  # for as long as Python runs: there is no way to take it back
    watching.append(True)
    reading()
    assert seen == []
    pickle.loads(pickle.dumps(Path()))
    watching.clear()
    assert "pickle.find_class" in dict(seen)


def test_other_and_missing_files_are_refused(tmp_path, run_file):
    with pytest.raises(InputError, match="is not an hpctrip checkpoint"):
        read(run_file)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "absent.ckpt0")
    assert checkpoints.MAGIC not in run_file.read_bytes()
