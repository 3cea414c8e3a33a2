"""What a run read, as texts in its files and as files on a disk."""

from __future__ import annotations

from hpctrip.base.io import digest, digest_of_file
from hpctrip.config.sources import Source, changed_sources, digest_of_files, files_at, read_sources


def test_a_source_is_read_back_from_its_text_whatever_its_path():
    for path in ("sites.csv", "my sites.csv", "a blake2b:00", "two\nlines"):
        source = Source("sites.path", path, "0af1")
        assert read_sources([str(source)]) == [source]


def test_only_keys_that_both_have_can_differ_and_plug_ins_are_no_such_key():
    before = [Source(key, "x", "1") for key in ("a", "b", "plugins", "c")]
    after = [Source("a", "x", "1"), Source("b", "y", "2"), Source("plugins", "x", "2")]
    assert changed_sources(before, after) == [(before[1], after[1])]


def test_one_file_counts_by_its_bytes_and_several_by_their_names_too(tmp_path):
    for name in "ba":
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()
    files = files_at(str(tmp_path))
    assert [file.name for file in files] == ["a", "b"]
    assert digest_of_files(files[:1]) == digest_of_file(files[0]) == digest(b"a")
    both = digest_of_files(files)
    (tmp_path / "b").rename(tmp_path / "c")
    assert digest_of_files(files_at(str(tmp_path))) != both


def test_files_of_several_folders_count_by_their_place_in_the_one_that_holds_all(tmp_path):
    for folder in ("x/no", "x/yes", "y/no", "y/yes"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "clip").write_text(folder[-2:])
    x, y = ([tmp_path / top / word / "clip" for word in ("no", "yes")] for top in "xy")
    assert digest_of_files(x) == digest_of_files(y)
    (tmp_path / "y/no").rename(tmp_path / "y/on")
    assert digest_of_files(x) != digest_of_files([tmp_path / "y/on/clip", y[1]])
