"""Rows and columns are two forms of the same history."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpctrip.base.rows import columns
from hpctrip.record import schema
from hpctrip.record.reader import open_run
from hpctrip.record.writer import write_run
from hpctrip.sim.rounds import Candidates, CohortRound, History, RoundRow

_INTEGERS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(width=64)


def _scalars(dtype):
    return _INTEGERS if dtype == "i8" else _FLOATS


def _parts(cls, length):
    return st.builds(
        cls, **{n: arrays(c["dtype"], length, elements=_scalars(c["dtype"])) for n, c in columns(cls).items()}
    )


@st.composite
def histories(draw):
    """Any values at all, NaN and infinities too; only the rounds count from 1, and the sites are two."""
    rows = []
    for number in range(1, draw(st.integers(0, 4)) + 1):
        values = {name: draw(_scalars(about["dtype"])) for name, about in columns(RoundRow).items()}
        k = draw(st.integers(0, 3))
        sites = draw(arrays("i8", k, elements=st.integers(0, 1)))
        cohort = dataclasses.replace(draw(_parts(CohortRound, k)), site=sites)
        candidates = draw(st.none() | _parts(Candidates, draw(st.integers(1, 3))))
        rows.append(RoundRow(**values | {"round": number}, cohort=cohort, candidates=candidates))
    return History(tuple(rows))


def assert_same(actual, expected):
    """The same dataclasses to the last bit, NaN included."""
    if dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            assert_same(getattr(actual, field.name), getattr(expected, field.name))
    elif isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            assert_same(*pair)
    elif expected is None:
        assert actual is None
    else:
        assert type(actual) is type(expected)
        np.testing.assert_array_equal(actual, expected)


@settings(max_examples=8)
@given(history=histories())
def test_a_history_comes_back_from_a_file_exactly(history, fake_sites, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.h5"
    write_run(path, {}, fake_sites(2), history)
    assert_same(open_run(path).history(), history)


def test_a_large_history_comes_back_through_compression(fake_history, fake_sites, tmp_path):
    history = fake_history(600, 4)  # 600 rounds of 8-byte numbers are above the bound for compression
    write_run(tmp_path / "run.h5", {}, fake_sites(4), history)
    actual, expected = schema.tables(open_run(tmp_path / "run.h5").history()), schema.tables(history)
    for table, names in expected.items():
        for name, column in names.items():
            assert actual[table][name].values.tobytes() == column.values.tobytes()


def test_rows_of_the_policy_without_a_search_have_no_candidates(fake_history):
    row = dataclasses.replace(fake_history(1, 5).rows[0], candidates=None)
    actual = schema.tables(History((row,)))
    assert len(actual["candidates"]["k"].values) == 0
    assert len(actual["rounds_sites"]["site"].values) == 2


def test_a_fraction_in_an_integer_column_is_refused_and_not_cut_off(fake_history):
    row = dataclasses.replace(fake_history(1, 5).rows[0], num_sites=2.5)
    with pytest.raises(TypeError):
        schema.tables(History((row,)))


def test_time_to_accuracy_is_the_end_of_the_first_round_that_has_it(fake_history):
    history = fake_history(3, 5)  # 21 + 31 + 41 s; accuracies 0.1, 0.2, 0.3
    assert schema.time_to_accuracy_s(history.curve(), 0.2) == 52.0
    assert schema.time_to_accuracy_s(history.curve(), 0.15) == 52.0
    assert math.isnan(schema.time_to_accuracy_s(history.curve(), 0.31))
    assert math.isnan(schema.time_to_accuracy_s(history.curve(), float("nan")))


def test_every_column_says_its_unit_and_what_it_is():
    for table in schema.TABLES.values():
        for about in table.values():
            assert about["unit"] and about["doc"] and about["dtype"] in ("i8", "f8")
