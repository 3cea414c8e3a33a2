"""The sum of the updates (Eq. 1) and the server's step (Eq. 2)."""

import numpy as np
import pytest
import torch
from allocations import NewTensors
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctrip.learn.aggregate import FIXED_POINT, PartialSum, mean_update
from hpctrip.learn.params import norm
from hpctrip.learn.server import SERVERS, DelayedNesterov, FedAdam, FedAvg

CPU = torch.device("cpu")
PIECE = 2**16
"""Entries that go through elementwise work at once."""


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


@pytest.mark.parametrize("num_params", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 13])
def test_a_large_model_is_summed_in_pieces_with_the_bits_of_the_whole(num_params):
    generator = torch.Generator().manual_seed(num_params)
    delta, weight, num_buffers = torch.randn(num_params + 3, generator=generator), 0.3, 3
    delta[-3:] *= 2.0**40  # buffers may be large
    expected = 2 * (delta[:num_params].double() * (weight * FIXED_POINT)).round().long()
    partial = PartialSum(num_params, 0, CPU, num_buffers)
    sums, whole = partial.vector.split([num_params + num_buffers, num_buffers])
    with NewTensors() as made:
        assert partial.add(delta, weight, magnitude=1.0) and partial.add(delta, weight, magnitude=1.0)
    assert torch.equal(sums[:num_params], expected) and max(made.sizes) <= PIECE
    with NewTensors() as made:
        update = mean_update(sums, whole)
    assert torch.equal(update[:num_params], expected.double() / FIXED_POINT) and max(made.sizes) <= PIECE
    assert torch.allclose(update[num_params:], 2 * weight * delta[num_params:].double(), rtol=1e-12)
    assert update.data_ptr() == sums.data_ptr()


def test_the_norm_of_a_large_update_is_that_in_float64():
    x = torch.rand(20_000_000, generator=torch.Generator().manual_seed(0))
    exact = float(torch.linalg.vector_norm(x, dtype=torch.float64))
    assert float(norm(x)) == pytest.approx(exact, rel=1e-4)  # torch's own is off by 7e-4
    assert float(norm(2 * x, x)) == float(norm(x))
    small = x[: 2**22]
    assert float(norm(small)) == float(torch.linalg.vector_norm(small))


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


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_delayed_nesterov_moves_its_momentum_with_every_nth_update(size):
    updates = [update * (1 + 0.1 * i) for i, update in enumerate(UPDATES * 3)]
    w = momentum = torch.zeros(3, dtype=torch.float64)
    for t, update in enumerate(updates, 1):
        w = w + 0.05 * update / size
        if t % size == 0:
            momentum = 0.9 * momentum + sum(updates[t - size : t]) / size
            w = w + 0.05 * 0.9 * momentum
    server = DelayedNesterov(lr=0.05, momentum=0.9, buffer=size)
    assert torch.allclose(steps(server, updates).double(), w, atol=1e-6)
    nesterov = steps(FedAvg(lr=0.05, momentum=0.9, nesterov=True), updates)
    assert torch.allclose(steps(DelayedNesterov(lr=0.05, buffer=1), updates), nesterov, atol=1e-6)


@pytest.mark.parametrize("num_params", [1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 13])
@pytest.mark.parametrize(
    "server",
    [
        FedAvg(),
        FedAvg(lr=0.7),
        FedAvg(momentum=0.9),
        FedAvg(lr=0.7, momentum=0.9, nesterov=True),
        FedAdam(),
        DelayedNesterov(buffer=2),
    ],
    ids=repr,
)
def test_a_large_model_is_stepped_in_pieces_with_the_bits_of_the_whole(server, num_params):
    generator = torch.Generator().manual_seed(num_params)
    whole, slots = torch.randn(num_params, generator=generator), server.initial_slots(num_params)
    pieced, pieced_slots = whole.clone(), slots.clone()
    for _ in range(3):
        update, before = torch.randn(num_params, generator=generator, dtype=torch.float64), pieced
        whole, pieced = server.step(whole, slots, update.clone()), torch.empty_like(before)
        with NewTensors() as made:
            server.apply(before, pieced_slots, update, out=pieced)
        assert torch.equal(whole, pieced) and torch.equal(slots, pieced_slots) and max(made.sizes) <= PIECE


class Clipped(FedAvg):
    """A step whose entries depend on all others."""

    kind = "clipped"

    def step(self, params, slots, update):
        return super().step(params, slots, update / torch.linalg.vector_norm(update).clamp(min=1.0))


def test_a_step_that_is_not_marked_as_elementwise_sees_the_whole_vector_also_over_one_that_is():
    params, update = torch.zeros(2 * PIECE), torch.ones(2 * PIECE, dtype=torch.float64)
    server, after = Clipped(), torch.empty_like(params)
    server.apply(params, server.initial_slots(len(params)), update, out=after)
    assert float(after.double().norm()) == pytest.approx(1)


@pytest.mark.parametrize(("server", "size"), [(FedAdam(), PIECE), (Clipped(), 3 * PIECE)])
def test_the_trial_of_a_step_takes_what_the_step_of_a_round_takes(server, size, monkeypatch):
    seen, step = [], type(server).step

    def watched(self, params, slots, update):
        seen.append((len(params), slots.shape[1], len(update)))
        return step(self, params, slots, update)

    watched.elementwise = getattr(step, "elementwise", False)
    monkeypatch.setattr(type(server), "step", watched)
    server.checked_slots(3 * PIECE)
    assert seen == [(size, size, size)]
