"""Samples that hpctrip has not made are checked before anything is trained on them."""

import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from torch import nn

from hpctrip.base.errors import InputError
from hpctrip.learn.data import cached
from hpctrip.learn.data.files import in_folder
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.learn.workloads.base import Workload

# --- folders and tables of images


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """`photos(path, ...)`: the folder `photos` with these images, each of its own."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"

    def make(*paths):
        for number, path in enumerate(paths):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), number).save(folder / path)
        return folder

    return make


def images(data, **keys):
    return WORKLOADS["images"](data=str(data), **keys)


CATS_AND_DOGS = [f"{label}/{number}.png" for label in ("cat", "dog") for number in range(4)]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "test"),
        ("Train", "VAL"),
        ("training", "valid"),
        ("train", "validation"),
        ("TRAIN", "Testing"),
    ],
)
def test_a_held_out_part_is_known_by_its_usual_names(train, test, photos):
    folder = photos(
        *(f"{train}/{path}" for path in CATS_AND_DOGS), *(f"{test}/{path}" for path in CATS_AND_DOGS[::2])
    )
    workload = images(folder)
    assert workload.described_data() == "12 images, 2 classes; 8 to train on, 4 to test on"
    assert len(workload.checked_task(0).test) == 4
    assert workload.rules == (1 if (train, test) == ("train", "test") else 2)


def test_the_part_test_counts_before_a_part_for_validation(photos):
    paths = [f"{part}/{path}" for part in ("train", "val", "test") for path in CATS_AND_DOGS]
    assert images(photos(*paths, "test/cat/9.png")).described_data().endswith("8 to train on, 9 to test on")


def test_what_is_hidden_is_left_out_at_every_level(photos):
    hidden = ".trash/0.png", "cat/.ipynb_checkpoints/0.png", "cat/more/.a/b/0.png", "dog/._0.png"
    assert images(photos(*CATS_AND_DOGS, *hidden)).described_data().startswith("8 images, 2 classes")


def test_hidden_files_are_no_arrays_and_no_texts(tmp_path):
    """As macOS leaves them in archives."""
    for name in ("x.npy", "y.npy", "._x.npy"):
        np.save(tmp_path / name, X if "x" in name else Y)
    (tmp_path / "._x.npy").write_bytes(b"Mac OS X")
    assert len(WORKLOADS["arrays"](data=str(tmp_path)).checked_task(0).train) == 18
    for name in ("a.json", "._a.json", ".a.json"):
        (tmp_path / name).touch()
    assert in_folder(tmp_path, (".json",), "") == [tmp_path / "a.json"]


def test_linked_folders_are_followed_once(photos, tmp_path):
    folder = photos(*CATS_AND_DOGS, "../disk/cat/a.png", "../disk/bird/deep/a.png", "../disk/one.png")
    (folder / "cat/more").symlink_to(tmp_path / "disk/cat")
    (folder / "cat/loop").symlink_to(folder / "cat")
    (folder / "bird").symlink_to(tmp_path / "disk/bird")
    (folder / "dog/link.png").symlink_to(tmp_path / "disk/one.png")
    workload = images(folder)
    assert workload.described_data().startswith("11 images, 3 classes")
    assert {path.name for path in workload.read()["all"].inputs} >= {"a.png", "link.png"}


def link(path, target):
    return lambda folder: (folder / path).symlink_to(folder / target)


@pytest.mark.parametrize(
    ("paths", "change", "complaint"),
    [
        (
            ["photos/cat/0.png", "photos/dog/0.png"],
            None,
            "has one class, 'photos', of which all 2 samples are",
        ),
        (["train/cat/0.png", "test/cat/0.png"], None, "has one class, 'cat'"),
        (["train/cat/0.png", "train/dog/0.png", "test/Cat/0.png"], None, "that no training sample has: Cat"),
        (["cat/0.png", "cat /0.png", "dog/0.png"], None, "differ only in blanks: 'cat', 'cat '"),
        (
            ["a/cat/0.png", "a/dog/0.png", "b/cat/0.png", "b/dog/0.png"],
            None,
            "hold folders of the same names, cat, dog: either may be",
        ),
        (
            CATS_AND_DOGS,
            link("dog/4.png", "cat/0.png"),
            "dog/4.png is an image that is in .* already, by a link",
        ),
        (CATS_AND_DOGS, link("dog/more", "cat"), "dog/more/0.png is an image that is in .* already"),
        (CATS_AND_DOGS, link("dog/more", "../unmounted"), "dog/more: is a link that leads nowhere"),
        (CATS_AND_DOGS, link("bird", "../unmounted"), "bird: is a link that leads nowhere"),
    ],
)
def test_folders_that_cannot_be_meant_are_refused_by_run_and_check(paths, change, complaint, photos):
    folder = photos(*paths)
    if change:
        change(folder)
    for ask in (images(folder).described_data, lambda: images(folder, test_fraction=0.5).checked_task(0)):
        with pytest.raises(InputError, match=complaint):
            ask()


def test_a_folder_that_was_prepared_does_not_stand_for_the_one_above_it(photos):
    folder = photos(*(f"photos/{path}" for path in CATS_AND_DOGS))
    assert images(folder / "photos", test_fraction=0.5).checked_task(0).num_classes == 2
    with pytest.raises(InputError, match="has one class, 'photos'"):
        images(folder, test_fraction=0.5).checked_task(0)


def test_folders_of_one_name_below_some_classes_are_no_classes(photos):
    """As in cat/images, dog/images, or where one of the classes has been sorted."""
    for paths in (
        ["cat/images/0.png", "dog/images/0.png"],
        [*CATS_AND_DOGS, "cat/big/a.png", "dog/big/a.png"],
    ):
        assert "2 classes" in images(photos(*paths)).described_data()


@pytest.mark.parametrize("again", ["photos/cat/0.png", "photos/../photos/cat/0.png", "linked/0.png"])
def test_an_image_that_a_table_lists_twice_is_refused(again, photos, tmp_path):
    (tmp_path / "linked").symlink_to(photos(*CATS_AND_DOGS) / "cat")
    rows = [f"photos/{path},{path[:3]}" for path in CATS_AND_DOGS]
    (tmp_path / "photos.csv").write_text("\n".join(["path,label", *rows, f"{again},dog"]))
    with pytest.raises(InputError, match=r"line 10: path = .* is an image that is listed above already"):
        images("photos.csv").check_data()


# --- arrays

X, Y = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2
SPLIT = {"x_train": X, "y_train": Y, "x_test": X[:10], "y_test": Y[:10]}


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": X, "y": 0 * Y}, "has one class, 0, of which all 20 samples are"),
        (SPLIT | {"y_test": Y[:10] + 1}, "has test samples of classes that no training sample has: 2"),
        (SPLIT | {"y_train": Y.astype(str)}, "has labels of types <U21 and int64"),
        (
            SPLIT | {"x_train": X.astype(np.uint8)},
            r"of type and shape uint8 \[2\], and test inputs of float32 \[2\]",
        ),
        (SPLIT | {"x_test": X[:10, :1]}, r"float32 \[2\], and test inputs of float32 \[1\]"),
        (
            {"x": X, "y": np.array(["cat", "dog", "cat ", "dog"] * 5)},
            "classes .* only in blanks: 'cat', 'cat '",
        ),
        ({"x": X, "y": np.array(["cat", " "] * 10)}, "classes that are blank or .*: ' '"),
        ({"x": X, "y": Y, "who": np.array(["u", "u\t"] * 10)}, r"owners .* only in blanks: 'u', 'u\\t'"),
    ],
)
def test_arrays_that_cannot_be_meant_are_refused_by_run_and_check(arrays, complaint, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    workload = WORKLOADS["arrays"](data=str(tmp_path / "a.npz"), owner="who" if "who" in arrays else None)
    for ask in (workload.described_data, lambda: workload.checked_task(0)):
        with pytest.raises(InputError, match=complaint):
            ask()


def test_a_class_that_the_random_split_leaves_to_the_test_set_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=np.array(["cat", "dog"] * 9 + ["rare", "dog"]))
    tasks = [WORKLOADS["arrays"](data=str(tmp_path / "a.npz")).checked_task(seed) for seed in range(20)]
    named = ["; only in the test set: rare" in task.source for task in tasks]
    assert named == [not (task.train.labels == 2).any() for task in tasks] and {*named} == {False, True}


# --- the task of a plug-in


class Own(Workload):
    """A workload whose task the test makes."""

    kind = "own"

    def task(self, seed):
        return self.made

    @property
    def made(self):
        return _made[0]


_made = []


def checked(task):
    _made[:] = [task]
    return Own().checked_task(0)


def task(**parts):
    train, test = Dataset(X, Y), Dataset(X[:10], Y[:10])
    sets = {"train": replace(train, **parts.pop("train", {})), "test": replace(test, **parts.pop("test", {}))}
    whole = Task(
        **sets, num_classes=3, build_model=nn.Identity, prepare=lambda x: x, loss=nn.functional.cross_entropy
    )
    return replace(whole, **parts)


def holed(array, value):
    array = array.copy()
    array[7, 1] = value
    return array


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        (
            {"train": {"inputs": holed(X, np.nan)}},
            "gave train inputs that are not finite, the first in sample 7",
        ),
        (
            {"test": {"inputs": holed(X[:10], -np.inf)}},
            "gave test inputs that are not finite, the first in sample 7",
        ),
        ({"train": {"inputs": X.astype(np.uint8)}}, "uint8 .* and test inputs of float32"),
        ({"train": {"inputs": X[:, :1]}}, r"\[1\], and test inputs of float32 \[2\]"),
        ({"train": {"labels": 0 * Y + 2}}, "gave 20 training samples, all of class 2"),
    ],
)
def test_samples_of_a_plug_in_that_cannot_be_meant_are_refused(parts, complaint):
    with pytest.raises(InputError, match=complaint):
        checked(task(**parts))


def test_a_plug_ins_samples_get_a_digest_unless_it_gives_one():
    same, other = checked(task()), checked(task(test={"labels": 1 - Y[:10]}))
    assert same.digests == checked(task()).digests != other.digests and same.digests.keys() == {"samples"}
    assert checked(task(digests={"data": "1"})).digests == {"data": "1"}
    assert checked(task(test={"labels": Y[:10] + 1})).source == "; only in the test set: 2"


def test_mapped_samples_are_read_once_while_their_file_stays(tmp_path, monkeypatch):
    """By every rank at every start: they may be large."""
    path, read = tmp_path / "x.npy", []
    np.save(path, X)
    original = cached._first_not_finite
    monkeypatch.setattr(cached, "_first_not_finite", lambda array: read.append(len(array)) or original(array))

    def start():
        mapped = np.load(path, mmap_mode="r").view(np.ndarray)
        return checked(task(train={"inputs": mapped}, test={"inputs": mapped[10:]}))

    first = start().digests
    read.clear()
    assert start().digests == first and read == [20, 10]  # the labels, which are in memory
    np.save(path, holed(X, np.nan))
    os.utime(path)
    with pytest.raises(InputError, match="not finite, the first in sample 7"):
        start()
