import json

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.data.glyphs import CHARACTERS, Glyphs, Writers
from hpctrip.learn.workloads.femnist import Femnist

pytestmark = pytest.mark.usefixtures("cache")


def image(ink, at=(3, 20)):
    """A white sheet, as LEAF writes it, with one pixel of ink."""
    sheet = np.ones((28, 28))
    sheet[at] = 1 - ink
    return sheet.flatten().tolist()


def leaf(**labels):
    """A file of LEAF's: writer w's sample of label l has its pixel at row l // 8."""
    data = {w: {"x": [image(0.6, (y // 8, 1)) for y in ys], "y": ys} for w, ys in labels.items()}
    return {"users": list(data), "num_samples": [len(ys) for ys in labels.values()], "user_data": data}


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def test_leafs_white_paper_becomes_the_black_of_emnist_and_writers_keep_their_samples(tmp_path):
    written(tmp_path / "train/all_data_0_train.json", leaf(f0001_41=[0, 61], f0002_10=[10, 36, 9]))
    written(tmp_path / "train/all_data_1_train.json", leaf(f0003_00=[35]))
    written(tmp_path / "test/all_data_0_test.json", leaf(f0001_41=[5]))
    task = Femnist(data=str(tmp_path)).task(0)
    assert task.train.labels.tolist() == [0, 61, 10, 36, 9, 35]
    assert "".join(CHARACTERS[y] for y in task.train.labels) == "0zAa9Z"
    assert task.train.groups.tolist() == [0, 0, 1, 1, 1, 2]
    assert task.test.labels.tolist() == [5]
    rows = task.train.inputs[:, :, 1]
    assert [int(row.argmax()) for row in rows] == [y // 8 for y in task.train.labels]
    assert task.train.inputs.max() == 153 and task.train.inputs.sum() == 6 * 153  # 0.6 of 255; paper is 0
    assert "3 writers, 6 training and 1 test samples" in task.source and not task.synthetic


def test_a_writer_in_two_files_is_one_owner_and_one_listed_twice_is_refused(tmp_path):
    written(tmp_path / "all_data_0.json", leaf(a=list(range(10)), b=[1]))
    written(tmp_path / "all_data_1.json", leaf(c=[2, 3], a=list(range(10, 20))))
    task = Femnist(data=str(tmp_path)).task(0)
    assert np.bincount(task.train.groups).tolist() == [18, 1, 2]  # nine tenths of each writer's, at least one
    assert task.train.labels[task.train.groups == 1].tolist() == [1]
    twice = leaf(a=[1], b=[2])
    written(tmp_path / "all_data_2.json", twice | {"users": ["a", "b", "a"]})
    with pytest.raises(InputError, match=r"all_data_2\.json: user 'a': is listed twice"):
        Femnist(data=str(tmp_path)).task(0)


def test_without_folders_a_tenth_of_each_writers_samples_is_to_test_on(tmp_path):
    path = written(tmp_path / "all_data.json", leaf(a=list(range(30)), b=list(range(20)), c=[7]))
    one, other = (Femnist(data=str(path)).task(seed) for seed in (0, 1))
    assert np.bincount(one.train.groups).tolist() == [27, 18, 1]
    assert np.bincount(one.test.groups).tolist() == [3, 2]
    both = sorted([*one.train.labels.tolist(), *one.test.labels.tolist()])
    assert both == sorted([*range(30), *range(20), 7])
    assert one.test.labels.tolist() != other.test.labels.tolist()


def of_one(**samples):
    """A file of LEAF's with one user's samples."""
    return json.dumps({"users": ["f7"], "num_samples": [1], "user_data": {"f7": samples}})


NO_IMAGES = {  # {case: samples with the wrong number of pixels, or with pixels that are no numbers}
    "a pixel lacks": [image(1)[1:]],
    "a pixel is a text": [["ink"] * 784],
    "pixels of two lengths": [image(1), [0.5]],
    "a pixel of 400 digits": [[10**400] * 784],
    "a sample is a number": [3],
    "a sample is an object": [{}],
}
BAD = {
    case: (of_one(x=x, y=[3] * len(x)), "user 'f7': a sample is not 784 numbers")
    for case, x in NO_IMAGES.items()
} | {
    "pixels up to 255": (
        of_one(x=[image(-254)], y=[3]),
        "user 'f7': pixels below 0 (ink) or above 1 (paper)",
    ),
    "no number": (of_one(x=[image(float("nan"))], y=[3]), "user 'f7': pixels below 0 (ink) or above 1"),
    "a label too large": (of_one(x=[image(1)], y=[62]), "user 'f7': label 62, expected 0 to 61"),
    "a label that is a character": (of_one(x=[image(1)], y=["a"]), "user 'f7': label 'a', expected 0 to 61"),
    "more samples than labels": (of_one(x=[image(1)] * 2, y=[3]), "user 'f7': 2 x, but 1 y"),
    "deep nesting": ("[" * 100_000 + "]" * 100_000, "not valid JSON (maximum recursion depth"),
    "a long name": (json.dumps({"users": ["a" * 10**6], "user_data": {}}), "user 'aaa"),
    "no samples": (json.dumps(leaf(a=[])), "has no train samples"),
    "no users": (json.dumps({"users": [], "num_samples": [], "user_data": {}}), "has no train samples"),
}


@pytest.mark.parametrize(("text", "complaint"), BAD.values(), ids=BAD)
def test_bad_samples_are_one_short_line_that_names_file_and_writer_and_leave_nothing_behind(
    text, complaint, tmp_path
):
    path = tmp_path / "data/all_data_7.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Femnist(data=str(path)).prepare_data(0)
    report = str(caught.value)
    assert str(path) in report and complaint in report and "\n" not in report and len(report) < 700
    assert not list((tmp_path / "cache/femnist").rglob("*.npy"))


def test_synthetic_writers_are_called_so_and_the_first_stay_whatever_their_number():
    task = Femnist(glyphs={"writers": 3, "samples": 40}).task(0)
    assert task.synthetic and "synthetic writers, not FEMNIST): 3 writers" in task.source
    three, two = (list(Writers(writers=n, samples=40).pages(0)) for n in (3, 2))
    for (images, labels), (same_images, same_labels) in zip(three, two, strict=False):
        assert np.array_equal(images, same_images) and np.array_equal(labels, same_labels)
    assert all(20 <= len(labels) <= 80 for _, labels in three)


def test_a_writer_has_a_hand_of_its_own():
    """Without distortion and noise a writer draws a character always alike, and no two writers do."""
    plain = {"distortion": 0, "noise": 0, "frequencies": "uniform"}
    ink = []
    for images, characters in Writers(writers=2, samples=600, **plain).pages(0):
        sevens = images[characters == 7].astype(float)
        assert np.abs(sevens - sevens.mean(0)).mean() < 12  # only the edge's softness varies
        ink.append(sevens.mean(0))
    assert np.abs(ink[0] - ink[1]).mean() > 12
    anyone, characters = Glyphs(**plain).draw(600, 0, "train")
    sevens = anyone[characters == 7].astype(float)
    assert np.abs(sevens - sevens.mean(0)).mean() > 12
