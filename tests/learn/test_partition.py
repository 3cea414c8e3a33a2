import tracemalloc
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hpctrip.base.errors import InputError
from hpctrip.learn import partition as module
from hpctrip.learn.partition import PARTITIONS, Dirichlet, Iid, Natural, Shards

EVERY = [
    Iid(),
    Dirichlet(),
    Dirichlet(alpha=0.001),
    Dirichlet(law="hsu", alpha=0.001),
    Dirichlet(law="hsu-per-label"),
    Dirichlet(law="pfl"),
    Dirichlet(balanced=False),
    Dirichlet(balanced=False, alpha=0.01),
    Shards(),
    Natural(),
]


def labels_of(num_samples, num_labels=10):
    """Every label is half as frequent as the one before, like no real set, so that labels run out."""
    return np.minimum(np.random.default_rng(0).geometric(0.5, num_samples) - 1, num_labels - 1)


def mixes(partition, labels, num_sites, seed=0):
    """[num_sites, num_labels] fraction of each label at each site."""
    sites = partition.split(labels, None, num_sites, seed)
    counts = np.array([np.bincount(labels[site], minlength=labels.max() + 1) for site in sites])
    return counts / counts.sum(axis=1, keepdims=True)


def test_every_partition_is_tried_here():
    assert {partition.kind for partition in EVERY} == set(PARTITIONS)


@pytest.mark.parametrize("partition", EVERY, ids=repr)
@given(num_sites=st.integers(1, 30), extra=st.integers(0, 200), seed=st.integers(0, 2**32))
@settings(max_examples=8)
def test_every_sample_has_exactly_one_site_and_every_site_a_sample(partition, num_sites, extra, seed):
    labels = labels_of(2 * num_sites + extra)
    sites = partition.split(labels, np.arange(len(labels)), num_sites, seed)
    assert len(sites) == num_sites
    assert min(map(len, sites)) >= 1
    assert np.array_equal(np.sort(np.concatenate(sites)), np.arange(len(labels)))
    assert all((np.diff(site) > 0).all() for site in sites)


@pytest.mark.parametrize("partition", EVERY, ids=repr)
def test_the_seed_alone_decides(partition):
    labels, groups = labels_of(300), np.arange(300) // 5
    one, same, other = (partition.split(labels, groups, 12, seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_site_costs_a_rank_a_number_besides_its_samples():
    """An array a site would take ten times as much."""
    num_sites = 50_000
    tracemalloc.start()
    sites = PARTITIONS["iid"]().split(np.zeros(2 * num_sites), None, num_sites, seed=0)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(sites) == num_sites and {len(site) for site in sites} == {2}
    assert held < 8 * (2 + 2) * num_sites


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(), Dirichlet(alpha=0.001)], ids=repr)
def test_sizes_differ_by_one_at_most_when_all_is_shared_out(partition):
    sizes = [len(site) for site in partition.split(labels_of(103), None, 10, seed=0)]
    assert sorted(sizes) == [10] * 7 + [11] * 3


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_samples_per_site_is_exact(kind):
    sites = PARTITIONS[kind](samples_per_site=8).split(labels_of(100), None, 12, seed=0)
    assert [len(site) for site in sites] == [8] * 12
    assert len(np.unique(np.concatenate(sites))) == 96


@pytest.mark.parametrize("balanced", [True, False])
def test_a_large_alpha_approaches_the_mix_of_the_whole_set(balanced):
    labels = labels_of(40_000)
    whole = np.bincount(labels) / len(labels)
    assert np.abs(mixes(Dirichlet(alpha=1e6, balanced=balanced), labels, 10) - whole).max() < 0.03


@pytest.mark.parametrize("balanced", [True, False])
def test_a_small_alpha_concentrates_the_labels(balanced):
    labels = np.arange(20_000) % 10
    top = [
        mixes(Dirichlet(alpha=a, balanced=balanced), labels, 40).max(axis=1).mean() for a in (0.05, 0.5, 50)
    ]
    assert top[0] > 0.6 > top[1] > 0.2 > top[2] > 0.1


@pytest.mark.parametrize(("law", "alpha"), [("hsu", 3.0), ("hsu-per-label", 0.3)])
def test_mixes_after_hsu_average_to_that_of_the_whole_set_though_half_the_samples_are_unused(law, alpha):
    labels = labels_of(40_000)
    mean = mixes(Dirichlet(law=law, alpha=alpha, samples_per_site=20), labels, 1000).mean(axis=0)
    assert mean == pytest.approx(np.bincount(labels) / len(labels), abs=0.02)


ZIPF = 1 / np.arange(1, 11)
ZIPF /= ZIPF.sum()
"""A known label mix p of ten labels."""

LAWS = {
    # each label over 1,000 sites
    "per-class": lambda rng: ZIPF * rng.dirichlet(np.full(1000, 0.3), len(ZIPF)).T,
    "hsu": lambda rng: rng.dirichlet(0.3 * ZIPF, 1000),
    "hsu-per-label": lambda rng: rng.dirichlet(0.3 * len(ZIPF) * ZIPF, 1000),
    "pfl": lambda rng: rng.dirichlet(np.full(len(ZIPF), 0.3), 1000),
}
"""[1000, 10]: what sites want, up to its sum, as the papers and the libraries say it, for alpha 0.3."""


def distance(mix):
    """Mean total-variation distance of the sites' mixes [num_sites, num_labels] from that of the whole set."""
    return np.abs(mix - ZIPF).sum(axis=1).mean() / 2


@pytest.mark.parametrize("law", LAWS)
def test_sites_are_as_far_from_the_whole_set_as_the_law_says_and_no_other(law):
    """A tenth of the samples is dealt out, so that no label runs out. The mean of 1,000 sites is sure to 0.01 or so."""
    labels = np.repeat(np.arange(10), (200_000 * ZIPF).astype(int))
    apart = distance(mixes(Dirichlet(law=law, alpha=0.3, samples_per_site=20), labels, 1000))
    rng, expected = np.random.default_rng(0), {}
    for name, draw in LAWS.items():
        wanted = draw(rng)
        expected[name] = distance(rng.multinomial(20, wanted / wanted.sum(axis=1, keepdims=True)) / 20)
    assert apart == pytest.approx(expected.pop(law), abs=0.02)
    assert min(abs(apart - other) for other in expected.values()) > 0.04


def test_only_the_law_per_class_knows_unequal_sizes():
    assert set(LAWS) == set(get_args(Dirichlet.model_fields["law"].annotation))
    for law in set(LAWS) - {"per-class"}:
        with pytest.raises(ValidationError, match='balanced = false needs law = "per-class"'):
            Dirichlet(law=law, balanced=False)


def test_a_label_that_runs_out_is_replaced_by_others_and_sizes_stay_exact():
    labels = np.array([0] * 97 + [1] * 3)
    sites = Dirichlet(alpha=0.001).split(labels, None, 10, seed=1)
    assert [len(site) for site in sites] == [10] * 10


def test_divided_by_label_one_label_gives_sizes_drawn_from_a_dirichlet():
    sizes = [
        len(site) for site in Dirichlet(alpha=0.3, balanced=False).split(np.zeros(5000), None, 10, seed=0)
    ]
    assert sum(sizes) == 5000
    assert max(sizes) > 2 * 500


def test_min_samples_tops_up_the_poor_from_what_the_rich_have_beyond_it():
    sites = Dirichlet(alpha=0.01, balanced=False, min_samples=7).split(labels_of(200), None, 20, seed=0)
    assert min(map(len, sites)) == 7
    assert sum(map(len, sites)) == 200


def test_two_shards_of_sorted_labels_hold_two_labels():
    labels = np.arange(1000) % 10  # 100 of each: 20 shards of 50, two of each label
    for site in Shards(shards_per_site=2).split(labels, None, 10, seed=0):
        assert len(site) == 100
        assert len(np.unique(labels[site])) <= 2


GROUPS = np.repeat([7, 3, 9, 4], [4, 1, 3, 2])


def test_a_natural_owner_is_never_divided():
    sites = Natural().split(np.zeros(10), GROUPS, 2, seed=0)
    owners = [set(GROUPS[site]) for site in sites]
    assert not owners[0] & owners[1]
    assert owners[0] | owners[1] == {3, 4, 7, 9}


def test_one_owner_per_site_leaves_the_others_out():
    sites = Natural(owners_per_site=1).split(np.zeros(10), GROUPS, 3, seed=0)
    assert all(len(set(GROUPS[site])) == 1 for site in sites)
    assert all(len(site) == list(GROUPS).count(GROUPS[site[0]]) for site in sites)


def test_samples_per_site_caps_natural_sites():
    sites = Natural(samples_per_site=2).split(np.zeros(10), GROUPS, 4, seed=0)
    assert sorted(map(len, sites)) == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("partition", "num_samples", "groups", "num_sites", "report"),
    [
        *((each, 3, np.arange(3), 4, "3 training samples cannot be shared out to 4 sites") for each in EVERY),
        *(
            (PARTITIONS[kind](samples_per_site=9), 100, None, 12, "12 sites x 9 samples are 108, .*at most 8")
            for kind in ("iid", "dirichlet", "shards")
        ),
        (Dirichlet(balanced=False, min_samples=11), 200, None, 20, "x 11 are more than the 200.*at most 10"),
        (Shards(shards_per_site=3), 10, None, 5, "5 sites x 3 shards are more than the 10.*at most 2"),
        (Natural(), 10, GROUPS, 5, "5 sites need 5 natural owners, but the data has 4"),
        (Natural(owners_per_site=2), 10, GROUPS, 3, "3 sites need 6 natural owners, but the data has 4"),
    ],
)
def test_too_few_samples_or_owners_are_refused_with_the_numbers(
    partition, num_samples, groups, num_sites, report
):
    with pytest.raises(InputError, match=report):
        partition.split(labels_of(num_samples), groups, num_sites, seed=0)


def test_a_hundred_thousand_sites_with_a_handful_of_samples_each_work():
    sites = Dirichlet(samples_per_site=3).split(labels_of(300_000), None, 100_000, seed=0)
    assert len(sites) == 100_000 and {len(site) for site in sites} == {3}


@pytest.mark.parametrize("law", get_args(Dirichlet.model_fields["law"].annotation))
def test_thousands_of_sites_are_dealt_with_in_parts_as_they_would_be_at_once(law, monkeypatch):
    """Whose temporaries would be four times as large as all mixes."""
    num_sites, num_labels = 20_000, 62
    labels, peaks, shards = np.random.default_rng(0).integers(num_labels, size=2 * num_sites), [], []
    for _ in range(2):
        tracemalloc.start()
        shards.append(Dirichlet(law=law).split(labels, None, num_sites, seed=3))
        peaks.append(tracemalloc.get_traced_memory()[1] / (8 * num_sites * num_labels))
        tracemalloc.stop()
        monkeypatch.setattr(module, "_parts", lambda rows: [rows])
    assert all(np.array_equal(a, b) for a, b in zip(*shards, strict=True))
    assert peaks[0] < 2 < 3 < peaks[1]


class OneTakesAll(Iid):
    """Leaves nothing to the others."""

    def owners(self, labels, groups, num_sites, rng):
        return np.zeros(len(labels), np.int64)


def test_a_site_without_samples_is_named():
    with pytest.raises(InputError, match=r"gave site 1 \(Oslo\) no sample"):
        OneTakesAll().split(labels_of(20), None, 2, 0, ["Bern", "Oslo"])
