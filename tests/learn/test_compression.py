"""Compressed updates: sizes and decoded values that a person can check, bounds, and the residuals of sites."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.base.rng import stream
from hpctrip.learn.compression import COMPRESSIONS, QSGD, Half, Int8, TopK, Uncompressed
from hpctrip.learn.engines.base import SiteState

VALUES = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=60)
FEW = settings(max_examples=40)


def decoded(rule, values, seed=0):
    return rule.roundtrip(torch.tensor(values, dtype=torch.float32), stream(seed, "compression", 1, 0))


# By hand


@pytest.mark.parametrize(
    ("rule", "num_params", "num_bytes"),
    [
        (Uncompressed(), 1000, 4000),
        (Half(), 1000, 2000),
        (Half(format="bfloat16"), 1000, 2000),
        (Int8(bucket_size=300), 1000, 1000 + 4 * 4),
        (QSGD(levels=1, bucket_size=1000), 1000, 250 + 4),  # -1, 0, 1: 2 bits
        (QSGD(levels=7, bucket_size=128), 1000, 500 + 4 * 8),  # 15 values: 4 bits
        (QSGD(levels=8, bucket_size=128), 1000, 625 + 4 * 8),  # 17 values: 5 bits
        (QSGD(levels=127, bucket_size=128), 1001, 1001 + 4 * 8),
        (TopK(fraction=0.01), 1000, 10 * 8),
        (TopK(fraction=0.01), 7, 1 * 8),
    ],
)
def test_the_payload_is_what_a_fixed_length_encoding_takes(rule, num_params, num_bytes):
    assert rule.payload_bytes(num_params) == num_bytes
    assert rule.sent_fraction(num_params) == num_bytes / (4 * num_params)


def test_int8_counts_in_127ths_of_its_buckets_largest():
    """Scales 1 and 0.02: 63.4 becomes 63, 1.0 is 50 steps; a bucket of zeros has no scale; the last one is short."""
    result = decoded(Int8(bucket_size=2), [127.0, 63.4, -2.54, 1.0, 0.0, 0.0, -5.0])
    assert result.tolist() == pytest.approx([127, 63, -2.54, 1.0, 0, 0, -5])


def test_half_rounds_to_its_format():
    """1/3 to 11 and to 8 significant bits; 70,000 is beyond float16 only."""
    assert decoded(Half(), [1 / 3, -2.0, 7e4]).tolist() == [1365 / 4096, -2.0, math.inf]
    assert decoded(Half(format="bfloat16"), [1 / 3, -2.0, 7e4]).tolist() == [171 / 512, -2.0, 70144.0]


def test_qsgd_draws_one_of_the_two_levels_around_an_entry():
    """(3, 4) has norm 5. In fifths it is exact; with one level each entry is 0 or 5, 3 and 4 times out of 5."""
    assert decoded(QSGD(levels=5, bucket_size=2), [3.0, -4.0, 0.0, 0.0]).tolist() == [3, -4, 0, 0]
    result = decoded(QSGD(levels=1, bucket_size=2), [3.0, -4.0] * 5000).view(-1, 2)
    assert set(result[:, 0].tolist()) == {0.0, 5.0} and set(result[:, 1].tolist()) == {0.0, -5.0}
    assert (result != 0).double().mean(dim=0).tolist() == pytest.approx([0.6, 0.8], abs=0.02)


def test_top_k_keeps_the_largest_magnitudes():
    assert decoded(TopK(fraction=0.4), [1.0, -5.0, 0.5, 3.0, -0.1]).tolist() == [0, -5, 0, 3, 0]


# Bounds


@given(VALUES, st.integers(1, 70))
@FEW
def test_int8_errs_by_half_a_scale_at_most(values, bucket_size):
    result = decoded(Int8(bucket_size=bucket_size), values)
    for start in range(0, len(values), bucket_size):
        exact = torch.tensor(values[start : start + bucket_size], dtype=torch.float64)
        bound = exact.abs().max() / 127 * (0.5 + 1e-5)  # the scale is a float32
        assert ((result[start : start + bucket_size] - exact).abs() <= bound + 1e-40).all()


@given(VALUES, st.sampled_from([("float16", 2.0**-11, 2.0**-25), ("bfloat16", 2.0**-8, 2.0**-134)]))
@FEW
def test_half_errs_by_half_a_unit_in_the_last_place_at_most(values, form):
    name, relative, absolute = form
    exact = torch.tensor(values, dtype=torch.float64)
    assert ((decoded(Half(format=name), values) - exact).abs() <= relative * exact.abs() + absolute).all()


@pytest.mark.parametrize("levels", [1, 7, 127])
def test_qsgd_is_unbiased_and_its_error_within_lemma_3_1(levels):
    """The mean over 20,000 draws is the update to five standard errors, a draw's being half a level at most."""
    num_draws, n = 20_000, 16
    update = torch.from_numpy(stream(1, "update").standard_normal(n)).float()
    rule = QSGD(levels=levels, bucket_size=n)
    draws = decoded(rule, update.repeat(num_draws).tolist()).view(num_draws, n).double()
    norm = float(torch.linalg.vector_norm(update))
    assert (draws.mean(dim=0) - update).abs().max() <= 5 * norm / levels / 2 / math.sqrt(num_draws)
    squared = (draws - update).square().sum(dim=1).mean()
    assert 0 < squared <= min(n / levels**2, math.sqrt(n) / levels) * norm**2


@given(VALUES, st.floats(0.01, 0.5))
@FEW
def test_the_entries_that_top_k_leaves_out_are_no_larger_than_those_it_sends(values, fraction):
    """So the squared error is at most (1 - k / P) of the update's: the contraction that error feedback needs."""
    rule, exact = TopK(fraction=fraction), torch.tensor(values, dtype=torch.float32)
    result = decoded(rule, values)
    assert ((result == exact) | (result == 0)).all() and (result != 0).sum() <= rule.num_sent(len(values))
    lost, all_ = (exact - result).double().square().sum(), exact.double().square().sum()
    assert lost <= (1 - rule.num_sent(len(values)) / len(values)) * all_ * (1 + 1e-9)


# Every kind


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_every_kind_keeps_the_contract(kind, size):
    rule = COMPRESSIONS[kind]()
    update = torch.from_numpy(stream(0, "update", size).standard_normal(size)).float()
    before = update.clone()
    result = rule.roundtrip(update, stream(0, "compression", 1, 0))
    assert result.dtype == torch.float32 and result.shape == update.shape and torch.equal(update, before)
    assert torch.equal(result, rule.roundtrip(update, stream(0, "compression", 1, 0)))
    assert not rule.roundtrip(torch.zeros(size), stream(0, "compression", 1, 0)).any()
    assert rule.payload_bytes(size) > 0 and rule.payload_bytes(1_000_000) <= 4_000_000


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_stays_so_that_the_sum_refuses_it(kind, bad):
    update = torch.ones(600)
    update[5] = bad
    assert not COMPRESSIONS[kind]().roundtrip(update, stream(0, "compression", 1, 0)).isfinite().all()


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_numbers_that_float32_can_hardly_square_or_divide_do_no_harm(kind):
    for size in (1e-44, 1e-25, 1e5):
        update = torch.tensor([size, -size / 2, 0.0])
        result = COMPRESSIONS[kind]().roundtrip(update, stream(0, "compression", 1, 0))
        assert (result.abs() <= 2 * size).all() or (kind == "half" and size == 1e5)


# Error feedback


def test_an_entry_that_is_not_sent_is_sent_later():
    rule, residual = TopK(fraction=0.5), torch.zeros(2)
    assert rule.send(torch.tensor([3.0, 2.0]), 0, 1, 4, residual).tolist() == [3, 0]
    assert residual.tolist() == [0, 2]
    assert rule.send(torch.tensor([3.0, 2.0]), 0, 2, 4, residual).tolist() == [0, 4]
    assert residual.tolist() == [3, 0]


def test_every_site_has_its_own_residual_and_nothing_that_was_ever_computed_is_lost():
    rule, rng, memory = TopK(fraction=0.1), stream(0, "updates"), SiteState(40, 0)
    updates = rng.integers(-50, 50, size=(12, 3, 40))  # integers, whose sums are exact
    sent = np.zeros((3, 40))
    for round, of_sites in enumerate(updates):
        for site, update in enumerate(of_sites):
            update, residual = torch.tensor(update, dtype=torch.float32), memory.of(site)[0]
            sent[site] += rule.send(update, 0, round, site, residual).numpy()
    for site in range(3):
        assert (sent[site] + memory.rows[site].numpy() == updates[:, site].sum(axis=0)).all()
        assert memory.rows[site].any()


def test_without_error_feedback_every_update_stands_alone_and_without_compression_nothing_is_copied():
    update = torch.tensor([3.0, 2.0])
    forgetful = TopK(fraction=0.5, error_feedback=False)
    assert [forgetful.send(update, 0, round, 4).tolist() for round in (1, 2)] == [[3, 0], [3, 0]]
    assert Uncompressed().send(update, 0, 1, 4) is update


def test_the_draw_has_the_name_of_the_round_and_the_site_and_nothing_else():
    update = torch.from_numpy(stream(0, "update").standard_normal(200)).float()
    one = QSGD().send(update, 7, round=1, site=3)
    assert torch.equal(one, QSGD().send(update, 7, round=1, site=3))
    for other in ((8, 1, 3), (7, 2, 3), (7, 1, 4)):
        assert not torch.equal(one, QSGD().send(update, *other))
