"""Workloads on data and models of the user's own."""

import itertools
import json

import numpy as np
import pytest
import torch
from PIL import Image

from hpctrip.base.errors import InputError
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.record.reader import open_run
from hpctrip.runner.experiment import read_input


@pytest.fixture
def photos(tmp_path):
    """A folder of four red and four blue images, one of them in grey and one lying on its side."""
    for label, colour in {"red": "red", "blue": "blue"}.items():
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (40, 20 + number), colour).save(tmp_path / "photos" / label / f"{number}.png")
    Image.new("L", (30, 30), 128).save(tmp_path / "photos" / "blue" / "0.png")
    return tmp_path / "photos"


def images(data, **keys):
    return WORKLOADS["images"](data=str(data), **keys)


def test_folders_of_images_are_classes_and_a_part_is_held_out_by_the_seed(photos):
    task = images(photos, test_fraction=0.25, image_size=8).checked_task(0)
    assert (len(task.train), len(task.test), task.num_classes, task.synthetic) == (6, 2, 2, False)
    assert task.train.inputs.shape == (6, 3, 8, 8) and task.train.groups is None
    seen = task.prepare(torch.from_numpy(np.array(task.train.inputs)))
    assert seen.min() == -1 and seen.max() == 1
    red = task.train.labels == 1  # the classes are sorted: blue, red
    assert (task.train.inputs[red][:, 0] == 255).all() and (task.train.inputs[red][:, 2] == 0).all()
    other = images(photos, test_fraction=0.25, image_size=8).checked_task(1)
    assert other.digests != task.digests
    assert task.build_model()(seen).shape == (6, 2)


def test_folders_train_and_test_are_used_as_they_are(photos, tmp_path):
    (tmp_path / "all").mkdir()
    for part in ("train", "test"):
        (tmp_path / "all" / part).symlink_to(photos)
    task = images(tmp_path / "all", channels=1).checked_task(0)
    assert (len(task.train), len(task.test)) == (8, 8) and task.train.inputs.shape[1:] == (1, 32, 32)


def test_a_table_of_images_may_name_owners(photos, tmp_path):
    rows = [f"photos/{label}/{n}.png,{label},cam{n % 2}" for label in ("red", "blue") for n in range(4)]
    (tmp_path / "photos.csv").write_text("\n".join(["path,label,camera", *rows]))
    task = images(tmp_path / "photos.csv", owner="camera", test_fraction=0.25).checked_task(0)
    assert set(task.train.groups) == {0, 1}


ARRAYS = {"x": np.arange(40.0).reshape(20, 2), "y": np.arange(20) % 2 + 7, "who": np.arange(20) % 5}


@pytest.mark.parametrize("layout", ["npz", "npy", "parts"])
def test_arrays_are_read_from_a_file_or_a_folder(layout, tmp_path):
    path = tmp_path / "arrays"
    if layout == "npy":
        path.mkdir()
        for name, array in ARRAYS.items():
            np.save(path / f"{name}.npy", array)
    else:
        ends = ("_train", "_test") if layout == "parts" else ("",)
        path = path.with_suffix(".npz")
        np.savez(path, **{name + end: array for name, array in ARRAYS.items() for end in ends})
    task = WORKLOADS["arrays"](data=str(path), owner="who", test_fraction=0.2).checked_task(3)
    assert len(task.train) == (20 if layout == "parts" else 16) and set(task.train.groups) == {*range(5)}
    assert (
        task.train.inputs.dtype == np.float32
        and (task.train.inputs[:, 0] // 2 % 2 == task.train.labels).all()
    )


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": np.ones((3, 2))}, "has the arrays x, and not y"),
        ({"x": np.ones((3, 2)), "y": np.ones(2, int)}, r"arrays of shape \[3, 2\] and \[2\]"),
        ({"x": np.ones((3, 2)), "y": np.ones(3)}, "arrays of type float64 and float64"),
        ({"x": np.full((3, 2), np.nan), "y": np.ones(3, int)}, "holds x that is not finite"),
        ({"x": np.array([[None]]), "y": np.ones(1, int)}, "holds no arrays of numbers or texts"),
    ],
)
def test_wrong_arrays_are_one_clear_line(arrays, complaint, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=complaint):
        WORKLOADS["arrays"](data=str(tmp_path / "a.npz")).checked_task(0)


WRONG = """
from torch import nn

class Pair(nn.Sequential):
    def __init__(self, n):
        super().__init__(nn.Flatten(), nn.Linear(784, n))

    def forward(self, x):
        return super().forward(x), 1

def Net(n):
    pass

def Broken(n):
    return 1 / 0

def Few(n):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))

def Lazy(n):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(n))

def Colours(n):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, n))
"""


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("workload={kind='images', data='none'}", "there is no file or folder none; give a folder with"),
        ("workload={kind='images', data='broken.csv'}", "line 2: path = 'none.png' is not a file"),
        (
            "workload={kind='images', data='points.npz'}",
            'points.npz\': has arrays, not a table of image files; set workload.kind = "arrays"',
        ),
        ("workload={kind='arrays', data='none.npz'}", "there are no arrays at none.npz"),
        ("workload.model='heavy'", "must be 'light' or 'leaf', or 'heavy' is not of the form file.py:Name"),
        ("workload.model='none.py:Net'", "workload.model = 'none.py:Net': there is no file none.py"),
        ("workload.model='net.py:Few'", "gives 3 outputs, the data have 62 classes"),
        ("workload.model='net.py:Lazy'", "workload.model = 'net.py:Lazy': gave a model with layers whose"),
        (
            "workload.model='net.py:Pair'",
            "workload.model = 'net.py:Pair': gave a tuple as its model's output",
        ),
        ("workload.model='net.py:Colours'", "it is called with float32 inputs [B, 1, 28, 28]"),
        ("workload.model='net.py:Nett'", "the file has no 'Nett'; did you mean 'Net'?"),
        ("workload.model='net.py:Broken'", "fails as Broken(62): ZeroDivisionError"),
        ("workload={kind='arrays', data='net.py:Net'}", "workload.data = 'net.py:Net': fails: TypeError"),
    ],
)
def test_wrong_data_and_models_are_one_clear_line(line, complaint, hpctrip, tiny, folder):
    (folder / "broken.csv").write_text("path,label\nnone.png,a\n")
    (folder / "net.py").write_text(WRONG)
    np.savez(folder / "points.npz", x=np.zeros((4, 2)), y=np.arange(4))
    hpctrip("run", tiny, "-o", line, "--out", "run.h5").check_refused([complaint])
    assert not list(folder.glob("run.h5*"))


NET = """
from torch import nn


def Net(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, num_classes))
"""


def test_a_model_of_ones_own_is_a_plug_in_that_resume_asks_for(hpctrip, tiny, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "net.py").write_text(NET)
    (folder / "mine" / "mine.toml").write_text("workload.model = 'net.py:Net'\n")
    ended = hpctrip("run", tiny, "mine/mine.toml", "--out", "run.h5")
    assert ended.code == 0, ended.err
    for text in (ended.out, hpctrip("show", "run.h5").out):
        assert "mine/net.py:Net, 48,670 parameters" in text, text
    run = open_run(folder / "run.h5")
    assert run.meta["num_params"] == 785 * 62 and run.meta["sources"][0].startswith(
        "plugins mine/net.py blake2b:"
    )
    again = ("resume", "run.h5", "-o", "stop.max_rounds=4")
    hpctrip(*again).check_refused(["made with plug-ins", "'mine/net.py'", "--plugin"])
    (folder / "net.py").write_text(NET)  # the same file elsewhere
    assert hpctrip(*again, "--plugin", "net.py").code == 0
    assert len(open_run(folder / "run.h5").rounds) == 4


OTHER_NETS = {
    "speech": ("nn.Sequential(nn.Flatten(), nn.Linear(98 * 40, num_classes))", 3921 * 3),
    "shakespeare": ("nn.Embedding(num_classes, num_classes)", 80 * 80),
}


@pytest.mark.parametrize("kind", OTHER_NETS)
def test_speech_and_text_take_a_model_of_ones_own(kind, hpctrip, tiny, tiny_workloads, folder):
    body, num_params = OTHER_NETS[kind]
    (folder / "net.py").write_text(f"from torch import nn\n\ndef Net(num_classes):\n    return {body}\n")
    lines = [*tiny_workloads[kind], "workload.model='net.py:Net'", "stop.max_rounds=1"]
    ended = hpctrip("run", tiny, *(word for line in lines for word in ("-o", line)), "--out", "run.h5")
    assert ended.code == 0, ended.err
    assert open_run(folder / "run.h5").meta["num_params"] == num_params


def test_prepared_texts_do_not_depend_on_the_model():
    few = {"sentences": {"roles": 3, "characters": 1500}}
    default, own = (WORKLOADS["shakespeare"](**few, **model) for model in ({}, {"model": "net.py:Net"}))
    assert own.folder(0) == default.folder(0)


def test_only_the_code_that_an_input_uses_in_the_end_is_run(folder):
    (folder / "below.toml").write_text("workload.model = 'none.py:Net'\n")
    assert json.loads(read_input(["below.toml"], ["workload.model='leaf'"]).json)["plugins"] == []


UNSEEDED = """
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpctrip.api import WORKLOADS, Dataset, Task, Workload


def drawn(number):
    x = np.random.default_rng(SEED).normal(size=(number, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def points():
    return TensorDataset(*map(torch.from_numpy, drawn(300)))


@WORKLOADS.add
class Mine(Workload):
    kind = "mine"
    lr, batch_size = 0.1, 20

    def task(self, seed):
        sets = Dataset(*drawn(300)), Dataset(*drawn(100))
        return Task(*sets, 2, lambda: nn.Linear(4, 2), lambda x: x, nn.functional.cross_entropy)
"""


SEEDS = {"own": "os.getpid()", "same": "3"}


@pytest.fixture(scope="module")
def on_two(launch, tmp_path_factory):
    """The only launch of two ranks, for both kinds, whose data are drawn by each rank or are the same."""
    folder = tmp_path_factory.mktemp("two")
    commands = {}
    for seed, kind in itertools.product(SEEDS, ("arrays", "mine")):
        plugin = folder / f"{seed}_{kind}" / "mine.py"
        plugin.parent.mkdir()
        plugin.write_text(UNSEEDED.replace("SEED", SEEDS[seed]))
        workload = f"{{kind='arrays', data='{plugin}:points'}}" if kind == "arrays" else "{kind='mine'}"
        lines = (f"workload={workload}", "sites.num_sites=4", "stop.max_rounds=1")
        words = ["run", "--plugin", plugin, *(word for line in lines for word in ("-o", line))]
        commands[f"{seed} {kind}"] = [*words, "--out", folder / f"{seed} {kind}.h5"]
    return launch.commands(2, folder, commands)


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["arrays", "mine"])
def test_data_that_differ_from_rank_to_rank_are_refused(kind, on_two):
    """A host would be tested on what others train on."""
    (line,) = on_two.output(f"own {kind}", "err").splitlines()
    assert line.startswith(f"hpctrip: workload.kind = '{kind}'") and "seed all" in line
    assert "gives rank 1 other data than rank 0" in line
    assert on_two.codes(f"own {kind}") == [2, 2] and on_two.codes(f"same {kind}") == [0, 0]
    if kind == "mine":
        assert "workload.samples - blake2b:" in on_two.run("same mine").meta["sources"][-1]
