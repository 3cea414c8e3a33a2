"""Local training in a round: the keys of the input, and for absent ones the values of the workload in the paper."""

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.workloads import WORKLOADS

SPEECH = WORKLOADS["speech"]()
IN_FORCE = ("lr", "batch_size", "optimizer", "weight_decay", "local_epochs", "local_steps")


def resolve(**keys):
    work = SPEECH.local_work(LocalWork(**keys)).model_dump()
    return tuple(work[name] for name in IN_FORCE)


def test_absent_keys_take_the_values_of_the_workload():
    assert resolve() == (0.001, 16, "adamw", 0.1, 1.0, None)
    assert resolve(lr=0.5, weight_decay=0.0, optimizer="sgd") == (0.5, 16, "sgd", 0.0, 1.0, None)


def test_samples_visited_in_a_round():
    """Steps take full batches, or the whole shard; a part of a pass is in whole batches of 16."""
    sizes = np.array([0, 2, 901])
    for keys, visits in (
        ({"local_steps": 3, "batch_size": 5}, [0, 6, 15]),
        ({"local_epochs": 0.1}, [0, 2, 96]),
        ({"local_epochs": 2}, [0, 4, 1802]),
        ({"local_epochs": 1.1}, [0, 4, 997]),
    ):
        assert SPEECH.local_work(LocalWork(**keys)).num_visits(sizes).tolist() == visits
    assert resolve(local_steps=3)[-2:] == (None, 3)
    # 0.1 of ten batches is one, though 1.1 - 1 is a little more than 0.1
    assert LocalWork(local_epochs=1.1, batch_size=20).num_visits([200]).tolist() == [220]


def test_the_smallest_batch_is_the_rest_of_an_epoch_or_a_shard_without_a_full_one():
    sizes = np.array([0, 41, 60])
    assert LocalWork(local_epochs=1, batch_size=20).smallest_batch(sizes) == 1
    assert LocalWork(local_epochs=0.5, batch_size=20).smallest_batch(sizes) == 1
    assert LocalWork(local_epochs=0.5, batch_size=20).smallest_batch(np.array([90, 50])) == 10
    assert LocalWork(local_steps=3, batch_size=20).smallest_batch(sizes) == 20
    assert LocalWork(local_steps=3, batch_size=50).smallest_batch(sizes) == 41


def test_a_round_of_too_many_samples_is_refused():
    work = LocalWork(local_steps=1_000_000, batch_size=1_000_000)
    with pytest.raises(
        InputError, match="site 1 would visit 1,000,000,000 samples in a round, the most is 100,000"
    ):
        work.num_visits([10, 1000])
    with pytest.raises(InputError, match=r"site 1 \(Oslo\) would visit"):
        work.num_visits([10, 1000], ["Bern", "Oslo"])


def test_a_run_names_the_site_that_would_visit_too_many_samples(hpctrip, tmp_path):
    (tmp_path / "sites.csv").write_text("name,distance_km\nBern,100\nOslo,900\n")
    sites = ("-o", f"sites={{kind='csv', path='{tmp_path / 'sites.csv'}'}}")
    many = ("-o", "train.local_steps=1000000", "-o", "train.batch_size=1000")
    refused = hpctrip("run", "inputs/smoke.toml", *sites, *many, "--out", tmp_path / "run.h5")
    refused.check_refused(["train: site 0 (Bern) would visit 200,000,000 samples in a round"])


@pytest.mark.parametrize(("size", "steps"), [(7, [7]), (61, [20, 20, 20, 1]), (401, [20] * 20 + [1])])
def test_no_batch_of_fedavg_holds_samples_of_two_epochs(size, steps):
    """McMahan et al. 2017, Alg. 1: E * ceil(n / B) steps, in each of which a sample occurs once."""
    work, shard = LocalWork(local_epochs=3, batch_size=20), 1000 + np.arange(size)
    batches = batches_of(work, work.visits(shard, seed=0, site=4, round=2))
    assert [len(batch) for batch in batches] == 3 * steps
    for epoch in range(3):
        visited = np.concatenate(batches[epoch * len(steps) : (epoch + 1) * len(steps)])
        assert sorted(visited.tolist()) == shard.tolist()


@pytest.mark.parametrize("size", [7, 61])
def test_every_site_makes_as_many_steps_however_small_its_shard(size):
    work, visited = LocalWork(local_steps=10, batch_size=20), []
    for _ in range(6):
        parts = work.visits(np.arange(size), seed=0, site=4, round=1, visited=sum(map(len, visited)))
        assert [len(batch) for batch in batches_of(work, parts)] == [min(size, 20)] * 10
        visited += parts
    order = np.concatenate(visited)
    for first in range(0, len(order) - size, size):  # pass after pass, whatever the steps
        assert sorted(order[first : first + size].tolist()) == list(range(size))


def test_a_pass_in_parts_goes_on_after_the_rounds_in_which_the_site_trained():
    """Rounds 1 and 3 are the first two of a site that skips round 2: together one whole pass."""
    work, shard = LocalWork(local_epochs=0.5, batch_size=1), np.arange(10)
    (first,), (second,) = work.visits(shard, 0, 4, round=1), work.visits(shard, 0, 4, round=3, visited=5)
    assert sorted([*first, *second]) == shard.tolist()
    more = LocalWork(local_epochs=1.5, batch_size=1)
    whole, half = more.visits(shard, 0, 4, round=3, visited=15)
    assert half.tolist() == second.tolist() and sorted(whole.tolist()) == shard.tolist()


def test_whole_passes_and_parts_of_passes_have_their_own_streams():
    """The full pass of round 5 was the one that half passes begin in round 9."""
    half, whole = (LocalWork(local_epochs=epochs, batch_size=1) for epochs in (0.5, 1))
    (begun,) = half.visits(np.arange(10), 0, 4, round=9, visited=40)
    (full,) = whole.visits(np.arange(10), 0, 4, round=5)
    assert begun.tolist() != full[:5].tolist()


def batches_of(work, parts):
    return [p[first : first + work.batch_size] for p in parts for first in range(0, len(p), work.batch_size)]
