"""Files are read whole where they are regular and of bounded size, and refused in one line otherwise."""

from __future__ import annotations

import gzip
import os

import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.files import check_file, digest, gunzipped, named_path, read_file


def test_a_regular_file_is_read_whole(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert read_file(tmp_path / "a", 3) == b"abc"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (os.mkfifo, "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (lambda path: path.write_bytes(b"abcd"), "holds 4 bytes, at most 3"),
        (lambda path: None, "no such file"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, make, problem):
    make(tmp_path / "a")
    with pytest.raises(InputError, match=problem) as caught:
        read_file(tmp_path / "a", 3, "sites.path")
    assert str(caught.value).startswith("sites.path: ") and "\n" not in str(caught.value)


def test_a_library_s_file_is_looked_at_before_the_library_reads_it(tmp_path):
    (tmp_path / "a").write_bytes(b"abcd")
    check_file(tmp_path / "a")
    check_file(tmp_path / "a", 4)
    with pytest.raises(InputError, match=r"^model: .*a: holds 4 bytes, at most 3 are read"):
        check_file(tmp_path / "a", 3, "model")
    os.mkfifo(tmp_path / "b")
    with pytest.raises(InputError, match="is no regular file"):
        check_file(tmp_path / "b")


def test_reading_takes_the_memory_of_the_file_and_not_that_of_its_bound(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert read_file(tmp_path / "a", 2**60) == b"abc"


def test_files_of_the_system_have_no_size_and_are_read_up_to_the_bound():
    path = f"/proc/{os.getpid()}/status"
    assert read_file(path, 10**6).startswith(b"Name:")
    with pytest.raises(InputError, match="at most 3 are read"):
        read_file(path, 3)


@pytest.mark.parametrize("name", ["a\0b", "~no_such_user_here/a", "x" * 300])
def test_a_name_that_can_be_no_file_is_refused(name):
    with pytest.raises(InputError, match=r"^sites\.path: names no file"):
        named_path(name, "sites.path")


@pytest.mark.parametrize(
    ("path", "place", "said"),
    [
        ("none.csv", "none.csv", "none.csv: no such file"),
        ("none.py", "plugins: 'none.py'", "plugins: 'none.py': no such file"),
        ("none//a.py", "plugins: 'none//a.py'", "plugins: 'none//a.py': no such file"),
        ("path", "sites.path", "sites.path: path: no such file"),
    ],
)
def test_a_report_names_the_file_once(tmp_path, monkeypatch, path, place, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_file(path, 3, place)
    assert str(caught.value).startswith(said)


def test_a_file_that_is_not_there_is_still_a_path(tmp_path):
    assert named_path(f"{tmp_path}/none", "sites.path") == tmp_path / "none"


def test_gzip_is_unpacked_up_to_its_bound(tmp_path):
    packed = gzip.compress(b"a" * 1000) + gzip.compress(b"b")
    assert gunzipped(packed, 1001, "f") == b"a" * 1000 + b"b"
    assert gunzipped(b"plain", 1, "f") == b"plain"
    with pytest.raises(InputError, match="holds more than 1,000 bytes when unpacked"):
        gunzipped(packed, 1000, "f")
    for damaged in (packed[:-3], packed[:5] + b"x" * 20):
        with pytest.raises(InputError, match="gzip stream"):
            gunzipped(damaged, 1001, "f")


def test_a_digest_is_of_the_content():
    assert digest(b"a") == digest(b"a") != digest(b"b") and len(digest(b"")) == 32


def test_a_link_is_followed_unless_the_reader_says_otherwise(tmp_path):
    (tmp_path / "secret").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("secret")
    assert read_file(tmp_path / "link", 3) == read_file(tmp_path / "secret", 3, links=False) == b"abc"
    with pytest.raises(InputError, match="link: is a symbolic link, which is not followed here"):
        read_file(tmp_path / "link", 3, links=False)
