"""Both engines do what a plain loop of nn.Module and torch.optim does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpctrip.learn.engines import ENGINES
from hpctrip.learn.engines.base import SiteWork
from hpctrip.learn.engines.steps import AutogradStep
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.models.cnn_step import CNNStep
from hpctrip.learn.params import flatten

WORKS = {
    "plain": LocalWork(lr=0.1, batch_size=8, optimizer="sgd"),
    "momentum": LocalWork(lr=0.05, batch_size=8, optimizer="sgd", momentum=0.9),
    "weight decay": LocalWork(lr=0.1, batch_size=8, optimizer="sgd", weight_decay=0.1),
    "prox": LocalWork(lr=0.1, batch_size=8, optimizer="sgd", prox_mu=0.5),
    "all": LocalWork(lr=0.05, batch_size=8, optimizer="sgd", momentum=0.5, weight_decay=0.1, prox_mu=0.5),
    "micro-batches": LocalWork(lr=0.05, batch_size=8, optimizer="sgd", momentum=0.5, micro_batch=3),
    "single samples": LocalWork(lr=0.1, batch_size=8, optimizer="sgd", micro_batch=1),
    "adamw": LocalWork(lr=0.01, batch_size=8, optimizer="adamw"),
    "adamw, all": LocalWork(
        lr=0.01,
        batch_size=8,
        optimizer="adamw",
        beta1=0.8,
        beta2=0.95,
        eps=1e-4,
        weight_decay=0.1,
        prox_mu=0.5,
    ),
}


def visits(site, num_visits, num_samples=60):
    return SiteWork(site, np.random.default_rng(site).integers(num_samples, size=num_visits))


@pytest.fixture(autouse=True)
def one_thread():
    """As on a rank of many."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(engine, params, sites):
    """The updates, with deltas that outlive the iteration."""
    return [(u.site, u.delta.clone(), float(u.train_loss), u.wall_s) for u in engine.train(params, sites)]


def build(name, task, work=WORKS["plain"]):
    return ENGINES[name](task, work, torch.device("cpu"))


UNEQUAL = [visits(7, 24), visits(2, 3), visits(5, 17), visits(4, 0), visits(9, 41)]


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_agrees_with_the_plain_loop_for_unequal_sites_and_ragged_batches(
    reference, name, work, task
):
    params = flatten(task.build_model())
    updates = trained(build(name, task, work), params, UNEQUAL)
    assert [u[0] for u in updates] == [7, 2, 5, 4, 9]
    for (_, delta, mean_loss, wall_s), site in zip(updates, UNEQUAL, strict=True):
        expected, expected_loss, _ = reference(task, work, params, site.order)
        torch.testing.assert_close(delta, expected, rtol=1e-3, atol=2e-5)
        assert mean_loss == pytest.approx(expected_loss, rel=1e-4)
        assert wall_s >= 0


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_tells_the_losses_of_the_first_batch_and_of_the_last(reference, name, task):
    """The first is the global model's own loss; a site of one batch has one loss, one without samples none."""
    params = flatten(task.build_model())
    for update, site in zip(build(name, task).train(params, UNEQUAL), UNEQUAL, strict=True):
        ends = reference(task, WORKS["plain"], params, site.order)[2]
        assert (update.loss_before, update.loss_after) == pytest.approx(ends, rel=1e-4)
        assert len(site.order) > 8 or update.loss_before == update.loss_after


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_leaves_the_global_parameters_alone_and_repeats_itself_to_the_bit(name, task):
    params = flatten(task.build_model())
    before, engine = params.clone(), build(name, task)
    # a block of one: where a stack could alias the global model
    first = trained(engine, params, [visits(3, 20)])
    assert first[0][1].abs().max() > 1e-3
    trained(engine, params + 1, UNEQUAL)
    again = trained(engine, params, [visits(3, 20)])
    assert torch.equal(params, before)
    assert torch.equal(first[0][1], again[0][1])
    assert first[0][2] == again[0][2]


@pytest.mark.parametrize("work", [WORKS["plain"], WORKS["all"]], ids=["plain", "all"])
def test_the_loop_gives_a_site_the_same_bits_in_every_block(task, work):
    params = flatten(task.build_model())
    together = trained(build("sequential", task, work), params, UNEQUAL)
    for (_, delta, mean_loss, _), site in zip(together, UNEQUAL, strict=True):
        ((_, alone, loss_alone, _),) = trained(build("sequential", task, work), params, [site])
        assert torch.equal(delta, alone)
        assert mean_loss == loss_alone


def test_a_stacked_site_does_not_notice_longer_neighbours(task):
    params = flatten(task.build_model())
    work = WORKS["all"]
    ((_, alone, loss_alone, _),) = trained(build("stacked", task, work), params, [visits(2, 11)])
    _, (_, together, loss_together, _) = trained(
        build("stacked", task, work), params, [visits(1, 50), visits(2, 11)]
    )
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)
    assert loss_together == pytest.approx(loss_alone, rel=1e-5)


@pytest.mark.parametrize("name", ENGINES)
def test_the_parameters_may_require_grad_or_be_a_view(reference, name, task):
    params = flatten(task.build_model())
    padded = torch.cat([torch.zeros(3), params])[3:].requires_grad_()
    (update,) = trained(build(name, task), padded, [visits(1, 9)])
    assert not update[1].requires_grad
    torch.testing.assert_close(
        update[1], reference(task, WORKS["plain"], params, visits(1, 9).order)[0], rtol=1e-3, atol=2e-5
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ENGINES)
def test_a_number_that_is_not_finite_reaches_the_delta(name, bad, task):
    params = flatten(task.build_model())
    params[-1] = bad
    (update,) = trained(build(name, task), params, [visits(1, 9)])
    assert not update[1].isfinite().all()


@pytest.mark.parametrize("name", ENGINES)
def test_a_site_that_diverges_harms_no_other(reference, name, synthetic_task):
    task = synthetic_task(lambda: CNN(3, (4, 6), 16, num_classes=5))
    params = flatten(task.build_model())
    hot = LocalWork(lr=1e25, batch_size=8, optimizer="sgd")
    short, diverged, empty = trained(
        build(name, task, hot), params, [visits(1, 8), visits(2, 30), visits(3, 0)]
    )
    assert not diverged[1].isfinite().all()
    torch.testing.assert_close(
        short[1], reference(task, hot, params, visits(1, 8).order)[0], rtol=1e-3, atol=0
    )
    assert not empty[1].any()


class Recorder(TorchDispatchMode):
    """The operators that ran."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


def test_a_stacked_round_runs_as_many_operators_for_nine_sites_as_for_two_and_never_asks_for_a_value(task):
    calls = []
    for num_sites in (2, 9):
        engine, params = build("stacked", task, WORKS["all"]), flatten(task.build_model())
        with Recorder() as recorder:
            next(engine.train(params, [visits(site, 20) for site in range(num_sites)]))
        calls.append(recorder.calls)
    assert len(calls[0]) > 50 and calls[0] == calls[1]
    assert torch.ops.aten._local_scalar_dense.default not in calls[0]
    assert torch.ops.aten.nonzero.default not in calls[0]


@pytest.mark.parametrize("kernel", [3, 5])
def test_the_hand_written_step_of_the_cnn_follows_autograd(kernel, synthetic_task):
    torch.manual_seed(2)
    work = LocalWork(lr=0.1, batch_size=20, optimizer="sgd")
    task = synthetic_task(lambda: CNN(kernel, (16, 32), 24, num_classes=5))
    model = task.build_model()
    by_hand, by_autograd = model.fused_step(F.cross_entropy, work), AutogradStep(model, F.cross_entropy, work)
    assert isinstance(by_hand, CNNStep)
    params = flatten(model)
    deltas = []
    for step in (by_hand, by_autograd):
        step.start(params)
        losses = [
            step(task.prepare(torch.from_numpy(task.train.inputs[b])), torch.from_numpy(task.train.labels[b]))
            for b in (slice(0, 20), slice(20, 40), slice(40, 47))
        ]
        deltas.append(torch.empty_like(params))
        step.finish(params, deltas[-1])
        assert losses[-1].requires_grad is False
    torch.testing.assert_close(*deltas, rtol=1e-3, atol=1e-5)


def test_the_cnn_offers_its_step_only_for_what_it_computes():
    model = CNN(3, (4, 6), 16)
    assert model.fused_step(F.cross_entropy, WORKS["plain"]) is not None
    assert model.fused_step(F.nll_loss, WORKS["plain"]) is None
    assert all(model.fused_step(F.cross_entropy, WORKS[w]) is None for w in WORKS if w != "plain")


def test_the_stacked_forward_of_the_cnn_is_its_forward_site_by_site():
    models = [CNN(5, (3, 4), 6, num_classes=5) for _ in range(3)]
    x = torch.randn(3, 2, 1, 28, 28)
    weights = {
        name: torch.stack([dict(m.named_parameters())[name] for m in models])
        for name, _ in models[0].named_parameters()
    }
    expected = torch.stack([m(site) for m, site in zip(models, x, strict=True)])
    torch.testing.assert_close(models[0].stacked_forward(weights, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ENGINES)
def test_frozen_parameters_stay_and_do_not_travel(reference, name, synthetic_task):
    def build_model():
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.Linear(5, 5))
        torch.manual_seed(4)
        for p in model[1].parameters():
            nn.init.normal_(p, std=0.1).requires_grad_(False)
        return model

    task = synthetic_task(build_model)
    params = flatten(build_model())
    (update,) = trained(build(name, task), params, [visits(1, 13)])
    assert update[1].shape == (30,)
    expected, *_ = reference(task, WORKS["plain"], params, visits(1, 13).order)
    torch.testing.assert_close(update[1], expected, rtol=1e-3, atol=1e-5)


def test_a_read_only_memory_map_will_do(tmp_path, recwarn, synthetic_task):
    task = synthetic_task(lambda: CNN(3, (4, 6), 16, num_classes=5))
    np.save(tmp_path / "images.npy", task.train.inputs)
    mapped = replace(task.train, inputs=np.load(tmp_path / "images.npy", mmap_mode="r"))
    task = replace(task, train=mapped)
    params = flatten(task.build_model())
    for name in ENGINES:
        assert len(trained(build(name, task), params, [visits(1, 9)])) == 1
    assert not recwarn.list
