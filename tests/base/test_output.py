"""Files are written whole, over files only, and over none that is read or was there, unless that is asked."""

from __future__ import annotations

import os
import stat

import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.output import append_to, check_suffix, refuse_inputs, replace_file, write_new


@pytest.mark.parametrize("through_a_link", [False, True])
def test_what_is_no_file_is_never_replaced(tmp_path, through_a_link):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for write in (replace_file, lambda path, data: write_new({path: data}, overwrite=True)):
        with pytest.raises(InputError, match="pipe: is no regular file"):
            write(tmp_path / ("link" if through_a_link else "pipe"), b"mine")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "link"}


def test_a_folder_is_never_replaced(tmp_path):
    with pytest.raises(InputError, match="it is a directory; choose another name, or a file inside it"):
        replace_file(tmp_path, b"mine")


def test_several_files_are_written_all_or_none(tmp_path):
    (tmp_path / "b").write_bytes(b"old")
    files = {tmp_path / "new" / "a": b"1", tmp_path / "b": b"2"}
    with pytest.raises(InputError, match="b: exists already; remove it, choose another name, or --overwrite"):
        write_new(files)
    assert [path.name for path in tmp_path.rglob("*")] == ["b"]
    assert write_new(files, overwrite=True) == list(files)
    assert (tmp_path / "new" / "a").read_bytes() == b"1" and (tmp_path / "b").read_bytes() == b"2"


def test_an_input_is_known_by_any_of_its_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("a")
    for out, given in (("a", "./a"), ("link", "a"), ("x/../a", tmp_path / "link")):
        with pytest.raises(InputError, match="is an input, which is never overwritten"):
            refuse_inputs([out], [given])
    refuse_inputs(["b"], ["a", "link"])


@pytest.mark.parametrize("name", ["a.txt", "a", "a.h5/", ".h5", "a.H5", "a.h5.gz"])
def test_a_name_ends_as_files_of_its_sort_do(name):
    with pytest.raises(
        InputError, match=r"does not end in \.h5 or \.hdf5; name the file so, e\.g\. NAME\.h5"
    ):
        check_suffix(name, (".h5", ".hdf5"))
    check_suffix("x y/.a.hdf5", (".h5", ".hdf5"))


def test_a_file_is_appended_to_only_where_it_is_a_file_of_this_name(tmp_path):
    path, precious = tmp_path / "new" / "log", tmp_path / "precious"
    for _ in range(2):
        with append_to(path) as file:
            file.write(b"line\n")
    assert path.read_bytes() == b"line\n" * 2
    precious.write_text("mine")
    path.unlink()
    path.symlink_to(precious)
    with pytest.raises(InputError, match="is a symbolic link, which is not written through"):
        append_to(path)
    assert precious.read_text() == "mine"
    path.unlink()
    os.mkfifo(path)
    for mode in (0, os.O_RDWR | os.O_NONBLOCK):  # without a reader, and with one
        reader = mode and os.open(path, mode)
        with pytest.raises(InputError, match=r"log: (cannot be written|is no regular file)"):
            append_to(path)
    os.close(reader)
