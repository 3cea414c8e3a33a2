"""A stream that breaks loses text, and nothing else."""

import io
import os

import pytest

from hpctrip.base.stream import Unfailing


class Breaks(io.StringIO):
    """Fails with this error from the second text on."""

    encoding = "utf-8"

    def __init__(self, error):
        super().__init__()
        self.error, self.tries = error, 0

    def write(self, text):
        self.tries += 1
        if self.tries > 1:
            raise self.error
        return super().write(text)


def test_text_passes():
    stream = io.StringIO()
    file = Unfailing(stream)
    assert file.write("größer\n") == 7 and stream.getvalue() == "größer\n"
    file.flush()
    assert not file.isatty()


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed file")]
)
def test_what_fails_is_given_up(error):
    stream = Breaks(error)
    file = Unfailing(stream)
    for text in ("one", "two", "three"):
        assert file.write(text) == len(text)
    file.flush()
    assert stream.getvalue() == "one" and stream.tries == 2


def test_a_terminal_that_is_only_behind_is_written_to_again():
    stream = Breaks(BlockingIOError())
    file = Unfailing(stream)
    for _ in range(4):
        file.write("x")
    assert stream.tries == 4


def test_what_the_encoding_cannot_say_is_escaped():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "ascii", write_through=True)
    Unfailing(stream).write("0.4 ┤ Zürich")
    assert raw.getvalue() == rb"0.4 \u2524 Z\xfcrich"


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_a_stream_that_is_closed_or_absent_takes_text_too(stream):
    if stream is not None:
        stream.close()
    file = Unfailing(stream)
    file.write("text")
    file.flush()
    assert not file.isatty()


def test_after_a_broken_pipe_nothing_is_left_to_fail_when_the_stream_is_closed():
    """As Python does at its end, when the exit code would become 120."""
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    os.close(reader)
    file = Unfailing(stream)
    file.write("text")
    file.flush()
    stream.close()
