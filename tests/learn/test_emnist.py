import gzip
import json
import multiprocessing
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from hpctrip.base.errors import InputError
from hpctrip.learn.data.files import read_idx
from hpctrip.learn.params import num_params
from hpctrip.learn.workloads.emnist import SPLITS, Emnist

SHARED = Path(__file__).parents[2].parent / "shared/data/emnist"


pytestmark = pytest.mark.usefixtures("cache")


def idx(array, magic=None):
    magic = magic or bytes([0, 0, 8, array.ndim])
    return magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def official(tmp_path):
    """Write a tiny set in the official layout: image i is dark but for pixel (row 3, column 20) of value i + 1."""

    def write(split="byclass", train_labels=(0, 61, 10, 9), test_labels=(1, 2), compress=gzip.compress):
        directory = tmp_path / "official"
        directory.mkdir(exist_ok=True)
        suffix = ".gz" if compress is gzip.compress else ""
        for part, labels in (("train", train_labels), ("test", test_labels)):
            upright = np.zeros((len(labels), 28, 28), np.uint8)
            upright[:, 3, 20] = np.arange(len(labels)) + 1
            for name, array in (
                ("images-idx3", upright.transpose(0, 2, 1)),
                ("labels-idx1", np.array(labels, np.uint8)),
            ):
                path = directory / f"emnist-{split}-{part}-{name}-ubyte{suffix}"
                path.write_bytes(compress(idx(array)))
        return directory

    return write


# IDX files

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped, by its content"])
@pytest.mark.parametrize("array", [IMAGES, np.zeros((0, 28, 28), np.uint8)], ids=["images", "none"])
def test_an_idx_file_gives_its_array(tmp_path, pack, array):
    (tmp_path / "images").write_bytes(pack(idx(array)))
    assert np.array_equal(read_idx(tmp_path / "images", 3), array)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (idx(IMAGES[0, 0]), "magic number is 0x00000801, expected 0x00000803"),
        (idx(IMAGES, magic=b"\0\0\x0d\x03"), "magic number is 0x00000d03, expected 0x00000803"),
        (b"", "magic number is 0x, expected 0x00000803"),
        (idx(IMAGES)[:9], "not a whole IDX file ("),
        (idx(IMAGES)[:-5], "not a whole IDX file (cannot reshape array of size 19 into shape (2,3,4))"),
        (idx(IMAGES) + b"x", "not a whole IDX file (cannot reshape array of size 25"),
    ],
)
def test_a_damaged_idx_file_is_named_with_its_content(tmp_path, content, complaint):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_idx(path, 3)
    assert complaint in str(error.value) and str(path) in str(error.value)
    assert error.value.faults[0].hint


# The workload


def test_the_splits_have_the_official_numbers_of_classes():
    assert [len(SPLITS[s]) for s in ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")] == [
        *(62, 47, 47, 26, 10, 10)
    ]
    assert sorted("".join(SPLITS["bymerge"])) == sorted("".join(SPLITS["byclass"]))


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["gz", "plain"])
def test_official_files_come_out_upright(official, compress):
    task = Emnist(data=str(official(compress=compress))).task(seed=0)
    assert task.train.inputs.shape == (4, 28, 28)
    assert task.train.inputs[:, 3, 20].tolist() == [1, 2, 3, 4]
    assert task.train.labels.tolist() == [0, 61, 10, 9]
    assert task.test.labels.tolist() == [1, 2]
    assert not task.synthetic


def test_labels_of_the_letters_split_count_from_one_in_the_file_and_from_zero_here(official):
    task = Emnist(data=str(official("letters", (1, 26))), split="letters").task(seed=0)
    assert task.train.labels.tolist() == [0, 25]
    assert task.num_classes == 26


def test_a_limit_takes_a_random_subset_that_the_seed_decides(official):
    workload = Emnist(data=str(official(train_labels=range(40))), train_samples=10)
    subsets = [workload.task(seed).train for seed in (0, 0, 1)]
    assert len(subsets[0]) == 10
    assert np.array_equal(subsets[0].inputs[:, 3, 20] - 1, subsets[0].labels)  # images keep their labels
    assert np.array_equal(subsets[0].labels, subsets[1].labels)
    assert not np.array_equal(subsets[0].labels, subsets[2].labels)


def test_without_limits_all_seeds_share_one_copy_of_the_files(official, cache):
    workload = Emnist(data=str(official()))
    workload.prepare_data(0)
    workload.prepare_data(1)
    assert len(list(cache.glob("emnist/*/settings.json"))) == 1


def test_changed_files_are_read_again(official):
    workload = Emnist(data=str(official()))
    assert workload.task(0).train.labels.tolist() == [0, 61, 10, 9]
    official(train_labels=(5, 6, 7, 8, 9))
    assert workload.task(0).train.labels.tolist() == [5, 6, 7, 8, 9]


def refusal(workload):
    with pytest.raises(InputError) as error:
        workload.prepare_data(0)
    return str(error.value)


def test_missing_files_are_named_and_so_are_the_splits_that_are_there(official):
    directory = official("digits")
    (directory / "emnist-digits-test-labels-idx1-ubyte.gz").unlink()
    report = refusal(Emnist(data=str(directory), split="digits"))
    assert "lacks emnist-digits-test-labels-idx1-ubyte[.gz];" in report
    report = refusal(Emnist(data=str(directory)))
    assert "emnist-byclass-train-images-idx3-ubyte[.gz]" in report
    assert "it has files of the splits digits" in report


def test_labels_of_another_split_are_found(official):
    directory = official("digits", train_labels=(3, 10))
    assert "label 10 of sample 1; digits has 0 to 9" in refusal(Emnist(data=str(directory), split="digits"))


def test_a_truncated_file_leaves_no_prepared_data(official, cache):
    directory = official()
    path = directory / "emnist-byclass-test-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-10])
    assert f"{path}: the gzip stream ends too early" in refusal(Emnist(data=str(directory)))
    assert not list((cache / "emnist").rglob("*.npy"))


def test_glyphs_say_that_they_are_synthetic(cache):
    task = Emnist(train_samples=30, test_samples=20).task(seed=0)
    assert (len(task.train), len(task.test), task.num_classes) == (30, 20, 62)
    assert task.synthetic
    assert "synthetic" in task.source
    (path,) = cache.glob("emnist/*/settings.json")
    settings = json.loads(path.read_text())
    assert "glyphs (synthetic)" in settings
    assert (settings["seed"], settings["limits"], settings["split"]) == (0, [30, 20], "byclass")


def test_glyphs_of_a_merged_split_have_its_labels():
    task = Emnist(train_samples=600, test_samples=1, split="letters", glyphs={"frequencies": "uniform"}).task(
        0
    )
    assert set(task.train.labels.tolist()) == set(range(26))


@pytest.mark.parametrize("change", [{"train_samples": 11}, {"split": "digits"}, {"glyphs": {"noise": 0.5}}])
def test_other_settings_are_other_data(change, cache):
    for settings in ({}, change):
        Emnist(**{"train_samples": 10, "test_samples": 10} | settings).prepare_data(0)
    assert len(list(cache.glob("emnist/*/settings.json"))) == 2


def prepare(result):
    Emnist(train_samples=2000, test_samples=10).prepare_data(0)
    result.put("done")


def test_processes_that_prepare_at_once_leave_one_whole_copy(cache):
    context = multiprocessing.get_context("fork")
    result = context.Queue()
    processes = [context.Process(target=prepare, args=(result,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    (folder,) = [p for p in (cache / "emnist").iterdir() if p.is_dir()]
    assert np.load(folder / "train_images.npy").shape == (2000, 28, 28)


def test_prepare_gives_one_channel_with_black_and_white_where_emnist_normalisation_puts_them():
    task = Emnist(train_samples=1, test_samples=1).task(0)
    batch = task.prepare(torch.tensor([[[0, 255]]], dtype=torch.uint8).expand(5, 28, 2))
    assert batch.shape == (5, 1, 28, 2)
    assert batch.dtype == torch.float32
    assert batch[0, 0, 0].tolist() == pytest.approx([-0.1736 / 0.3317, (1 - 0.1736) / 0.3317])


@pytest.mark.parametrize(("model", "parameters"), [("light", 213_630), ("leaf", 1_690_046)])
def test_models_have_the_size_that_the_documentation_says(model, parameters):
    task = Emnist(train_samples=1, test_samples=1, model=model).task(0)
    assert num_params(task.build_model()) == parameters


@pytest.mark.skipif(not SHARED.is_dir(), reason="no files in EMNIST's layout in ../shared/data/emnist")
def test_real_handwriting_in_the_official_layout_loads_upright():
    task = Emnist(data=str(SHARED)).task(0)
    assert (len(task.train), len(task.test)) == (60_000, 6_000)
    assert len(np.unique(task.train.labels)) == 62
    seven = task.train.inputs[task.train.labels == 7].mean(axis=0)
    assert seven[4:12].sum() > seven[16:24].sum()  # the bar of the 7 is above its stem, not to the left of it
