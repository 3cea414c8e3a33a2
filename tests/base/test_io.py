"""Files are read and written whole, and every failure is one line that names the file."""

from __future__ import annotations

import gzip
import io
import os
import stat
from pathlib import Path

import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.io import (
    BestEffortStream,
    append_to,
    check_suffix,
    digest_of_file,
    matching,
    read_file,
    read_text,
    read_unpacked,
    remove_leftovers,
    replace_file,
    write_new,
)

# Reading


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert read_file(tmp_path / "a") == b"abc" and read_text(tmp_path / "a") == "abc"
    assert read_file(f"/proc/{os.getpid()}/status").startswith(b"Name:")  # a file without a size
    (tmp_path / "b").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"b: cannot be read \(not a UTF-8 text\)"):
        read_text(tmp_path / "b")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda path: None, "no such file"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, make, problem):
    path = tmp_path / "a"
    make(path)
    for read, *place in ((read_file, "sites.path"), (digest_of_file,)):
        with pytest.raises(InputError, match=problem) as caught:
            read(path, *place)
        assert str(caught.value).startswith(f"{[*place, path][0]}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "place", "report"),
    [
        ("none.csv", "none.csv", "none.csv: no such file"),
        ("none.py", "plugins: 'none.py'", "plugins: 'none.py': no such file"),
        ("none//a.py", "plugins: 'none//a.py'", "plugins: 'none//a.py': no such file"),
        ("path", "sites.path", "sites.path: path: no such file"),
    ],
)
def test_a_report_names_the_file_once(tmp_path, monkeypatch, path, place, report):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_file(path, place)
    assert str(caught.value).startswith(report)


def test_gzip_is_unpacked_or_refused_where_it_is_damaged(tmp_path):
    packed, path = gzip.compress(b"a" * 1000) + gzip.compress(b"b"), tmp_path / "f"
    for content, unpacked in ((packed, b"a" * 1000 + b"b"), (b"plain", b"plain")):
        path.write_bytes(content)
        assert read_unpacked(path) == unpacked
    for damaged in (packed[:-3], packed[:5] + b"x" * 20):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="gzip stream"):
            read_unpacked(path)


# Paths and patterns


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("tr[2019]", ["tr[2019]"]),
        ("tr[2019]/*.csv", ["tr[2019]/a?.csv", "tr[2019]/b.csv"]),
        ("tr[2019]/a?.csv", ["tr[2019]/a?.csv"]),
        ("tr[01]/*", ["tr1/ab.csv"]),
        ("tr*/**/*.csv", ["tr1/ab.csv", "tr[2019]/a?.csv", "tr[2019]/b.csv"]),
        ("~/tr[2019]/b*", ["tr[2019]/b.csv"]),
        ("tr[2019]/c.csv", []),
        ("none[1]/*", []),
    ],
)
def test_a_path_that_exists_is_itself_and_the_rest_of_a_path_a_pattern(
    tmp_path, monkeypatch, pattern, matches
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("tr[2019]/a?.csv", "tr[2019]/b.csv", "tr1/ab.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert matching(pattern if pattern.startswith("~") else tmp_path / pattern) == [
        tmp_path / name for name in matches
    ]
    monkeypatch.chdir(tmp_path)
    if not pattern.startswith("~"):
        assert matching(pattern) == [Path(name) for name in matches]


# Writing


def test_folders_and_devices_are_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        for write in (replace_file, lambda path, data: write_new({path: data}, overwrite=True)):
            with pytest.raises(InputError, match="pipe: is not a regular file"):
                write(tmp_path / name, b"mine")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "link"}
    with pytest.raises(InputError, match="it is a directory; choose another name, or a file inside it"):
        replace_file(tmp_path, b"mine")


def test_leftovers_of_this_file_alone_are_removed(tmp_path):
    left, others = "[a].h5.0123456789abcdef.tmp", ["[a].h5", "[a].h5.mine.tmp", "a.h5.0123456789abcdef.tmp"]
    for name in (left, *others):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "[a].h5")
    assert {path.name for path in tmp_path.iterdir()} == set(others)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.h5/", "folder/", ".h5", "a.H5", "a.h5.gz", "a.h5.ckpt0"])
def test_a_name_ends_as_files_of_its_sort_do(name):
    problem = r"does not end in \.h5 or \.hdf5; name the file so, e\.g\. NAME\.h5"
    with pytest.raises(InputError, match=problem):
        check_suffix(name, (".h5", ".hdf5"))
    check_suffix("x y/.a.hdf5", (".h5", ".hdf5"))


def test_a_file_is_appended_to_and_made_with_its_folder(tmp_path):
    path = tmp_path / "new" / "log"
    for _ in range(2):
        with append_to(path) as file:
            file.write(b"line\n")
    assert path.read_bytes() == b"line\n" * 2
    with pytest.raises(InputError, match="new: cannot be written: it is a directory"):
        append_to(tmp_path / "new")


# The console's stream


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


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed file")]
)
def test_a_stream_that_fails_is_not_written_to_again(error):
    stream = Breaks(error)
    file = BestEffortStream(stream)
    for text in ("one", "two", "three"):
        assert file.write(text) == len(text)
    file.flush()
    assert stream.getvalue() == "one" and stream.tries == 2


def test_a_terminal_that_is_only_behind_is_written_to_again():
    stream = Breaks(BlockingIOError())
    file = BestEffortStream(stream)
    for _ in range(4):
        file.write("x")
    assert stream.tries == 4


@pytest.mark.parametrize(
    ("text", "encoding", "written"),
    [
        ("größer, run\udcff.h5", "utf-8", "größer, run\\udcff.h5".encode()),
        ("0.4 ┤ Zürich", "ascii", rb"0.4 \u2524 Z\xfcrich"),
    ],
)
def test_text_passes_and_what_the_encoding_lacks_is_escaped(text, encoding, written):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
    assert BestEffortStream(stream).write(text) == len(text)
    assert stream.buffer.getvalue() == written


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_a_stream_that_is_closed_or_absent_takes_text_too(stream):
    if stream is not None:
        stream.close()
    file = BestEffortStream(stream)
    file.write("text")
    file.flush()
    assert not file.isatty()


def test_after_a_broken_pipe_nothing_is_left_to_fail_when_the_stream_is_closed():
    """As Python does at its end, when the exit code would become 120."""
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    os.close(reader)
    file = BestEffortStream(stream)
    file.write("text")
    file.flush()
    stream.close()
