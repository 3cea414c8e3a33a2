"""Prepared data checks itself: what is mapped is what was written, at the price of a few calls."""

import os
import pwd
import shutil

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.data import cached

pytestmark = pytest.mark.usefixtures("cache")


def arrays():
    return {"x": np.arange(1000, dtype=np.uint8), "words": np.array(["no", "yes"]), "n": np.array(3)}


def prepared(build=arrays):
    return cached.prepared("some", {"a": 1}, build)


def values(folder):
    return {name: cached.load(folder, name).tolist() for name in arrays()}


WHOLE = {name: array.tolist() for name, array in arrays().items()}


def flip(path, at=-100):
    """One bit of one byte, with the file's times put back."""
    content, status = bytearray(path.read_bytes()), path.stat()
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def truncate(path):
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize("damage", [flip, truncate, os.remove, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", ["x.npy", "manifest.json"])
def test_prepared_data_that_are_damaged_are_made_again(caplog, name, damage):
    folder = prepared()
    digest = cached.digest_of(folder)
    damage(folder / name)
    assert values(prepared()) == WHOLE and cached.digest_of(folder) == digest
    # a flipped bit of the manifest is a state that no file has
    assert "made again" in caplog.text or (name, damage) == ("manifest.json", flip)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_what_was_compared_once_is_not_read_again_until_it_changes(monkeypatch):
    folder = prepared(lambda: arrays())
    read = []
    load = cached.load
    monkeypatch.setattr(cached, "load", lambda folder, name: read.append(name) or load(folder, name))
    prepared(None)
    assert read == []
    os.utime(folder / "x.npy")
    for _ in range(2):
        prepared(None)
    assert read == ["x"]


def test_a_copy_of_a_cache_is_compared_and_then_known(cache, tmp_path, monkeypatch):
    folder = prepared()
    shutil.copytree(cache, tmp_path / "copy")
    monkeypatch.setenv("HPCTRIP_CACHE", str(tmp_path / "copy"))
    copy = prepared(None)  # nothing is made again
    assert copy.parent == tmp_path / "copy/some" and values(copy) == WHOLE
    assert cached.digest_of(copy) == cached.digest_of(folder)


def test_a_damaged_copy_in_a_cache_that_cannot_be_written_is_one_clear_report(monkeypatch):
    folder = prepared()
    flip(folder / "x.npy")

    def full(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cached.np, "save", full)
    with pytest.raises(InputError, match=r"prepared data cannot be written here.*HPCTRIP_CACHE"):
        prepared()


def test_two_writers_without_working_locks_leave_one_whole_copy(monkeypatch):
    def build():
        cached.prepared("race", {}, lambda: {"x": np.arange(3)})  # the other one is faster
        return {"x": np.arange(3)}

    monkeypatch.setattr("filelock.FileLock.acquire", lambda self: None)
    folder = cached.prepared("race", {}, build)
    assert cached.load(folder, "x").tolist() == [0, 1, 2]
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == [folder.name]


def test_the_digest_is_of_names_types_shapes_and_values():
    digests = {
        cached.digest_of(cached.prepared(str(i), {}, lambda made=made: made))
        for i, made in enumerate(
            (
                {"x": np.arange(4)},
                {"y": np.arange(4)},
                {"x": np.arange(4).reshape(2, 2)},
                {"x": np.arange(4, dtype=np.int32)},
                {"x": np.arange(4) + 1},
            )
        )
    }
    assert len(digests) == 5
    again = cached.prepared("again", {}, lambda: {"x": np.asfortranarray(np.arange(4).reshape(2, 2))})
    assert cached.digest_of(again) in digests


def test_the_content_of_files_is_remembered_while_they_stay_as_they_are(tmp_path, monkeypatch):
    files = [tmp_path / "a.safetensors", tmp_path / "tokenizer.json"]
    for file in files:
        file.write_text(file.name)
    digest = cached.content_of(files)
    with monkeypatch.context() as patch:
        patch.setattr(cached, "digest_of_files", None)
        assert cached.content_of(files) == digest
    status = files[0].stat()
    files[0].write_text("A.SAFETENSORS")  # of the same size, and at the same time to the nanosecond
    os.utime(files[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cached.content_of(files) != digest


def test_a_user_without_a_home_is_told_to_name_the_cache(monkeypatch):
    """As in a container with a user id of its own."""

    def unknown(user):
        raise KeyError(f"uid not found: {user}")

    for variable in ("HPCTRIP_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(InputError, match="has no home folder for it; set HPCTRIP_CACHE to a folder"):
        cached.cache_dir()


def test_in_a_home_that_is_read_only_data_go_to_the_temporary_folder_which_is_said_once(
    monkeypatch, tmp_path, caplog
):
    home, job = tmp_path / "home", tmp_path / "job"
    home.mkdir()
    job.mkdir()
    monkeypatch.delenv("HPCTRIP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    before = cached.prepared("toy", {"n": 1}, lambda: {"x": np.zeros(1)})
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: home not in (path, *path.parents) and access(path, mode)
    )
    monkeypatch.setattr(cached.tempfile, "gettempdir", lambda: str(job))
    cached._temporary_dir.cache_clear()
    made = cached.prepared("toy", {"n": 2}, lambda: {"x": np.zeros(1)})
    assert job in made.parents and cached.prepared("toy", {"n": 2}, dict) == made
    assert cached.prepared("toy", {"n": 1}, dict) == before  # what is there is used
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{home}/hpctrip cannot be written" in said and "HPCTRIP_CACHE" in said


@pytest.mark.parametrize("home", ["/proc/nope", __file__])
def test_a_home_that_cannot_be_is_no_fault_but_a_cache_that_the_user_named_is(monkeypatch, tmp_path, home):
    monkeypatch.delenv("HPCTRIP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setattr(cached.tempfile, "gettempdir", lambda: str(tmp_path))
    cached._temporary_dir.cache_clear()
    assert tmp_path in cached.prepared("toy", {"n": 1}, lambda: {"x": np.zeros(1)}).parents
    monkeypatch.setenv("HPCTRIP_CACHE", home)
    with pytest.raises(InputError, match="prepared data cannot be written here"):
        cached.prepared("toy", {"n": 1}, dict)


def test_a_home_folder_in_the_name_of_the_cache_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HPCTRIP_CACHE", "~/prepared")
    assert cached.cache_dir() == tmp_path / "prepared"
    monkeypatch.setenv("HPCTRIP_CACHE", "~no-such-user/prepared")
    with pytest.raises(InputError, match="HPCTRIP_CACHE: names no file"):
        cached.cache_dir()
