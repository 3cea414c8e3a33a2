import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.learn.aggregate import FIXED_POINT, PartialSum, mean_update

CPU = torch.device("cpu")


def summed(deltas, weights):
    partial = PartialSum(len(deltas[0]), 0, CPU)
    for delta, weight in zip(deltas, weights, strict=True):
        assert partial.add(delta, weight)
    return partial.vector


@given(st.integers(0, 10**6), st.permutations(range(12)), st.integers(1, 11))
@settings(max_examples=25)
def test_any_grouping_and_order_of_sites_gives_the_same_bits(seed, order, cut):
    generator = torch.Generator().manual_seed(seed)
    deltas = [torch.randn(50, generator=generator) * 10 ** float(i - 6) for i in range(12)]
    weights = np.random.default_rng(seed).dirichlet(np.ones(12))
    first, second = list(order[:cut]), list(order[cut:])
    parts = [summed([deltas[i] for i in part], [weights[i] for i in part]) for part in (first, second)]
    assert torch.equal(parts[0] + parts[1], summed(deltas, weights))


def test_the_sum_is_eq_2_to_the_resolution_of_the_fixed_point():
    generator = torch.Generator().manual_seed(0)
    deltas = [torch.randn(1000, generator=generator, dtype=torch.float32) for _ in range(5)]
    weights = [0.1, 0.2, 0.3, 0.25, 0.15]
    exact = sum(w * d.double() for w, d in zip(weights, deltas, strict=True))
    assert (mean_update(summed(deltas, weights)) - exact).abs().max() <= 5 * 0.5 / FIXED_POINT + 1e-16


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 2.0**20, -(2.0**21)])
def test_a_diverged_update_is_caught_before_the_cast_and_adds_nothing(bad):
    delta = torch.ones(10)
    delta[3] = bad
    partial = PartialSum(10, 0, CPU)
    assert not partial.add(delta, 0.5) and not partial.vector.any()


def test_the_tail_is_carried_along_untouched():
    partial = PartialSum(4, 3, CPU)
    partial.tail[1] = 42
    partial.add(torch.ones(4), 1.0)
    assert partial.vector[4:].tolist() == [0, 42, 0]
    assert mean_update(partial.vector[:4]).tolist() == [1, 1, 1, 1]
