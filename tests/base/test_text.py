"""Foreign text is shown whole where it is short and harmless, else cut and escaped."""

import pytest

from hpctrip.base.text import printable


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
def test_what_a_terminal_would_obey_is_escaped(text, shown):
    assert printable(text) == shown
    shown.encode()  # lone surrogates cannot be printed


def test_long_text_is_cut_and_says_so():
    assert printable("a" * 12_345, 10) == "a" * 10 + "... (12,335 more characters)"


def test_escapes_count_by_their_length():
    assert printable("\x00" * 1000, 10) == r"\x00\x00... (998 more characters)"
