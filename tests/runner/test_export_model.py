"""The trained model can be taken out, under the names that PyTorch knows its parameters by."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from hpctrip.learn.params import digest, flatten
from hpctrip.record.checkpoint import newest, pack
from hpctrip.record.reader import open_run
from hpctrip.runner.experiment import read_input


@pytest.fixture(scope="module")
def original(tmp_path_factory, hpctrip, tiny):
    folder = tmp_path_factory.mktemp("run")
    assert hpctrip("run", tiny, "-o", "stop.max_rounds=1", "--out", folder / "run.h5").code == 0
    return folder


@pytest.fixture
def trained(original, tmp_path):
    """A run of one round with its checkpoint."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run.h5"


def test_pytorch_loads_the_exported_model(trained, hpctrip, tiny, tmp_path):
    out = tmp_path / "model.safetensors"
    assert hpctrip("export", trained, "--model", out).out.strip() == str(out)
    experiment = read_input([str(tiny)]).experiment
    model = experiment.workload.task(experiment.seed).build_model()
    model.load_state_dict(load_file(out), strict=True)
    assert digest(flatten(model)) == open_run(trained).meta["params_digest"]
    with safe_open(out, "np") as file:
        assert file.metadata()["round"] == "1" and "max_rounds = 1" in file.metadata()["input_toml"]


TIED = """
import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.flat, self.first, self.second = nn.Flatten(), nn.Linear(784, 784), nn.Linear(784, 784)
        self.last = nn.Linear(784, num_classes)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(()))
        self.last.register_buffer("scale", self.scale)

    def forward(self, x):
        return self.last(self.second(self.first(self.flat(x)).relu())) * self.scale
"""


def test_pytorch_loads_tied_weights_under_all_of_their_names(hpctrip, tiny, tmp_path):
    (tmp_path / "net.py").write_text(TIED)
    out, model = tmp_path / "run.h5", f"workload.model={tmp_path}/net.py:Tied"
    done = hpctrip("run", tiny, "-o", model, "-o", "stop.max_rounds=1", "--out", out)
    assert done.code == 0, done.err
    exported = hpctrip("export", out, "--model", tmp_path / "m.safetensors", "--plugin", tmp_path / "net.py")
    assert exported.code == 0, exported.err  # the code gives the constant scale
    experiment = read_input([str(tiny)], [model]).experiment
    built = experiment.workload.task(experiment.seed).build_model()
    built.load_state_dict(load_file(tmp_path / "m.safetensors"), strict=True)
    assert built.second.weight is built.first.weight and built.last.scale is built.scale
    trained = torch.cat([parameter.detach().reshape(-1) for parameter in built.parameters()])
    assert digest(trained) == open_run(out).meta["params_digest"]


def test_a_model_of_one_checkpoint_and_tables_together(trained, hpctrip, tmp_path):
    _, file, _ = newest(trained)
    assert hpctrip("export", file, "--model", tmp_path / "a.safetensors").code == 0
    assert hpctrip("export", trained, tmp_path / "csv", "--model", tmp_path / "b.safetensors").code == 0
    assert (tmp_path / "a.safetensors").read_bytes() != b"" and (tmp_path / "csv" / "rounds.csv").exists()


def test_an_impossible_export_is_one_clear_line(trained, hpctrip, tmp_path):
    hpctrip("export", trained, "--model", tmp_path / "m.pt").check_refused(
        ["m.pt: does not end in .safetensors"]
    )
    out = tmp_path / "m.safetensors"
    out.write_bytes(b"precious")
    hpctrip("export", trained, "--model", out).check_refused([f"{out}: exists already"])
    checkpoint, file, _ = newest(trained)
    file.write_bytes(b"".join(pack(dataclasses.replace(checkpoint, metadata={}))))
    hpctrip("export", trained, "--model", tmp_path / "n.safetensors").check_refused(
        ["an older hpctrip wrote it"]
    )
    for suffix in ("0", "1"):
        trained.with_name(f"run.h5.ckpt{suffix}").unlink(missing_ok=True)
    refused = hpctrip("export", trained, "--model", tmp_path / "n.safetensors")
    refused.check_refused(["has no checkpoint beside it"])
    assert hpctrip("export", trained).code == 2


def test_a_scalar_keeps_its_shape(trained, tmp_path, hpctrip):
    checkpoint, file, _ = newest(trained)
    model = dataclasses.replace(checkpoint.model, params=np.arange(7, dtype=np.float32))
    metadata = {**checkpoint.metadata, "parameters": ["scale", "w 2x3"]}
    file.write_bytes(b"".join(pack(dataclasses.replace(checkpoint, model=model, metadata=metadata))))
    assert hpctrip("export", file, "--model", tmp_path / "m.safetensors").code == 0
    arrays = load_file(tmp_path / "m.safetensors")
    assert arrays["scale"].shape == () and torch.equal(arrays["w"], torch.arange(1.0, 7).reshape(2, 3))
