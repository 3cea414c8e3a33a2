"""Ranks of one machine exchange through shared memory, and machines through MPI."""

import json
import os
import time
from pathlib import Path

import pytest

from hpctrip.ranks import node

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def on_five(launch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    ended = launch(5, folder, script=HERE / "on_node.py")
    assert ended.code == 0, ended.err
    return [json.loads((folder / f"node-{rank}.json").read_text()) for rank in range(5)]


@pytest.mark.mpi
def test_sums_and_broadcasts_are_right_at_every_length_and_in_any_order(on_five):
    for seen in on_five:
        assert len(seen["sums"]) == 6 and all(seen["sums"].values()), seen["sums"]
        assert len(seen["tells"]) == 3 and all(seen["tells"].values()), seen["tells"]
        assert seen["any order"]


@pytest.mark.mpi
def test_nothing_is_left_on_disk_while_a_job_runs(on_five):
    assert [seen["left over"] for seen in on_five] == [[]] * 5


@pytest.mark.mpi
def test_where_one_rank_cannot_share_memory_all_go_through_mpi(on_five):
    without = [seen["not for the third"] for seen in on_five]
    assert {seen["size"] for seen in without} == {1}
    assert [seen["total"] for seen in without] == [[5, 10], *[None] * 4]
    assert [seen["data"] for seen in without] == [[7]] * 5
    assert [seen["local_host"] for seen in without] == [0, 0, 1, 2, 3]


def test_a_full_disk_means_no_shared_memory(tmp_path, monkeypatch):
    def full(path, kind, mode=0o600):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(node, "_PLACES", (tmp_path,))
    monkeypatch.setattr(node.os, "mkfifo", full)
    assert node._create_folder(3) is None and list(tmp_path.iterdir()) == []


def test_what_a_killed_job_left_goes_at_the_next_start_and_a_living_one_is_let_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "_PLACES", (tmp_path,))
    dead, living, young = (node._create_folder(3) for _ in range(3))
    unlike = tmp_path / "other-folder"
    unlike.mkdir()
    dead[1].close()
    young[1].close()
    hour_ago = time.time() - 3600
    for folder in (dead[0], living[0], unlike):
        os.utime(folder, (hour_ago, hour_ago))
    made = node._create_folder(3)
    assert set(tmp_path.iterdir()) == {living[0], young[0], unlike, made[0]}
