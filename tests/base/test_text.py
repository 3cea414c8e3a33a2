"""Foreign text is shown whole where it is short and harmless, else cut and escaped."""

import tomllib

import pytest
import tomli_w

from hpctrip.base.text import labelled, printable, printable_toml, shown, size_text


@pytest.mark.parametrize("text", ["", "policy.k = 5", "Zürich, 東京, 🏭", "C:\\data", "a" * 400])
def test_ordinary_text_stays(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("two\r\nlines\t", r"two\r\nlines\t"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("abc\u202edcba\u2066", r"abc\u202edcba\u2066"),
        ("\u2028\ud800", r"\u2028\ud800"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown
    shown.encode()  # lone surrogates cannot be printed


def test_long_text_is_cut_and_its_length_is_named():
    assert printable("a" * 12_345, 10) == "a" * 10 + "... (12,335 more characters)"
    assert printable("\x00" * 1000, 10) == r"\x00\x00... (998 more characters)"


def test_toml_that_a_terminal_obeys_is_escaped_and_means_the_same():
    table = {"label": "\x1b[2J \x9b \u202e \U000e0001 Zürich", "two": "lines\n"}
    text = printable_toml(tomli_w.dumps(table))
    assert tomllib.loads(text) == table
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (707_616, "708 kB"), (1.5e9, "1.5 GB"), (2e12, "2,000 GB")],
)
def test_a_size_is_written_in_the_unit_that_fits(size_bytes, text):
    assert size_text(size_bytes) == text


def test_values_are_shown_short_whatever_their_size():
    for value in ("x" * 10_000, ["x" * 1000] * 1000, 16**1000, [[[[[[1]]]]]]):
        assert len(shown(value)) < 5000
    assert shown([1, "a", None, {"b": 0.5}]) == "[1, 'a', None, {'b': 0.5}]"


def test_labelled_texts_stand_in_two_columns_escaped_cut_and_wrapped(monkeypatch):
    texts = {"a": "x y z", "long": "", "b": "\x1b" + "c" * 99}
    lines = "\n".join(labelled(texts, 8, 9)).splitlines()
    assert lines[:3] == ["a     x y", "      z", "long  -"]
    assert lines[3:5] == [r"b     \x1", "      bcc"] and lines[-1] == "      )" and len(lines) < 16
    assert max(map(len, lines)) == 9
    monkeypatch.setenv("COLUMNS", "9")
    assert "\n".join(labelled(texts, 8)).splitlines() == lines
