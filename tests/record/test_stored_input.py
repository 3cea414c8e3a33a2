"""The input that a results file holds comes from anybody."""

from __future__ import annotations

import pytest

from hpctrip.record import stored_input
from hpctrip.record.stored_input import resolved_input


def test_what_a_run_writes_is_read():
    text = '{"policy": {"kind": "x", "curve": [[0.5, 1], [1, 2]]}, "label": null, "big": 9223372036854775808}'
    assert resolved_input(text)["policy"]["curve"] == [[0.5, 1], [1, 2]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "is no table"),
        ("null", "is no table"),
        ("{", "Expecting"),
        ('{"a": ' + "[" * 30 + "]" * 30 + "}", "more than 20 levels"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ('{"a": ' + "9" * 5000 + "}", "4300 digits"),
        ('{"a": [NaN]}', "not finite"),
        ('{"a": 1e999}', "not finite"),
        ('{"a\\u001b": 1}', "has the key"),
        ('{"' + "a" * 300 + '": 1}', "has the key"),
    ],
)
def test_anything_else_is_refused(text, problem):
    with pytest.raises((ValueError, RecursionError), match=problem):
        resolved_input(text)


def test_the_bounds_hold(monkeypatch):
    monkeypatch.setattr(stored_input, "MAX_CHARACTERS", 20)
    with pytest.raises(ValueError, match="has 21 characters"):
        resolved_input('{"a": "' + "x" * 12 + '"}')
    monkeypatch.setattr(stored_input, "MAX_KEYS", 2)
    with pytest.raises(ValueError, match="more than 2 keys"):
        resolved_input('{"a":1,"b":{"c":1}}')
