"""The sum of the updates (Eq. 1) and the server's step (Eq. 2)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.learn.aggregate import FIXED_POINT, PartialSum, mean_update
from hpctrip.learn.server import SERVERS, FedAdam, FedAvg

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
    partial.begin(3)
    partial.tail[1] = 42
    partial.add(torch.ones(4), 1.0)
    assert partial.vector[4:].tolist() == [0, 42, 0]
    assert mean_update(partial.vector[:4]).tolist() == [1, 1, 1, 1]


# The step


def steps(server, updates):
    params, slots = torch.zeros(3), server.initial_slots(3)
    for update in updates:
        params = server.step(params, slots, update)
    return params


UPDATES = [torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) * scale for scale in (1.0, 0.5, -0.25)]


def test_plain_fedavg_adds_the_updates():
    assert torch.equal(steps(FedAvg(), UPDATES), torch.tensor([1.25, -2.5, 0.625]))
    assert torch.equal(steps(FedAvg(lr=2.0), UPDATES), torch.tensor([2.5, -5.0, 1.25]))


@pytest.mark.parametrize("nesterov", [False, True])
def test_server_momentum_is_torch_sgd_on_the_negative_update(nesterov):
    reference = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([reference], lr=0.7, momentum=0.9, nesterov=nesterov)
    for update in UPDATES:
        reference.grad = -update
        sgd.step()
    assert torch.allclose(
        steps(FedAvg(lr=0.7, momentum=0.9, nesterov=nesterov), UPDATES).double(), reference, atol=1e-6
    )


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_every_server_leaves_its_argument_alone_and_returns_float32(kind):
    server, params = SERVERS[kind](), torch.ones(3)
    after = server.step(params, server.initial_slots(3), UPDATES[0])
    assert (
        after.dtype == torch.float32 and torch.equal(params, torch.ones(3)) and not torch.equal(after, params)
    )


def test_fedadam_remembers_both_moments():
    """Two steps of Reddi et al. 2021, Algorithm 2, written out."""
    server, first, second, params = FedAdam(lr=0.1, tau=0.5), 0.0, 0.25, torch.zeros(3, dtype=torch.float64)
    for update in UPDATES[:2]:
        first = 0.9 * first + 0.1 * update
        second = 0.99 * second + 0.01 * update**2
        params = params + 0.1 * first / (second**0.5 + 0.5)
    assert torch.allclose(steps(server, UPDATES[:2]).double(), params, atol=1e-7)
