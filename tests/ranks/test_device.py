"""Choice of devices on a machine with simulated GPUs."""

from types import SimpleNamespace

import pytest
import torch

from hpctrip.base.errors import InputError
from hpctrip.ranks.base import choose_device, gpu_identity, hosts_kind


def rank(rank, size=5, kinds=()):
    hosts = range(1, size) if size > 1 else range(1)
    return SimpleNamespace(
        rank=rank,
        hosts=hosts,
        local_host=rank - 1,
        gather=lambda kind: list(kinds),
        decide_on_root=lambda decide: decide(),
    )


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_a_nodes_gpus_are_dealt_out_over_its_hosts_and_the_aggregator_has_none(two_gpus):
    devices = [str(choose_device("auto", rank(r))) for r in range(5)]
    assert devices == ["cpu", "cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert str(choose_device("cpu", rank(1))) == "cpu"


def test_a_gpu_is_known_by_its_uuid_whatever_its_number_is(two_gpus, monkeypatch):
    uuids = SimpleNamespace(uuid="GPU-7")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: uuids)
    assert gpu_identity(torch.device("cuda", 0)) == "GPU-7"
    del uuids.uuid  # torch 2.4
    assert gpu_identity(torch.device("cuda", 1)) == "1"
    assert gpu_identity(torch.device("cpu")) == ""


def test_the_aggregator_learns_what_its_hosts_train_on():
    cpu = torch.device("cpu")
    assert hosts_kind("auto", cpu, rank(0, 3, ["cpu", "cuda", "cuda"])) == "cuda"
    assert hosts_kind("auto", cpu, rank(0, 3, ["cpu", "cuda", "cpu"])) == "cpu"
    assert hosts_kind("auto", cpu, rank(0, 1, ["cuda"])) == "cuda"


def test_asking_for_cuda_where_a_host_has_none_names_the_host():
    with pytest.raises(InputError, match="at rank 2"):
        hosts_kind("cuda", torch.device("cpu"), rank(0, 3, ["cpu", "cuda", "cpu"]))
