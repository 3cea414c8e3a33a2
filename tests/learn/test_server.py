import pytest
import torch

from hpctrip.learn.server import SERVERS, FedAdam, FedAvg


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
