"""Both engines do what a plain loop of nn.Module and torch.optim does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpctrip.learn.engines import engines
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.params import flatten

ENGINES = engines()
MODELS = {
    "cnn 3x3": lambda: CNN(3, (4, 6), 16, num_classes=5),
    "cnn 5x5": lambda: CNN(5, (3, 5), 12, num_classes=5),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.Tanh(), nn.Linear(8, 5)),
}
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
    "diloco": LocalWork(
        lr=0.05,
        batch_size=8,
        optimizer="adamw",
        beta2=0.99,
        eps=1e-4,
        weight_decay=0.5,
        local_steps=6,
        warmup_steps=3,
        cosine_steps=9,
        clip_norm=0.2,
        decay_vectors=False,
    ),
}


def visits(site, num_visits, num_samples=60):
    """Two parts where there is more than a batch; none where there is nothing to visit."""
    order = np.random.default_rng(site).integers(num_samples, size=num_visits)
    return [part for part in np.split(order, [num_visits // 2 if num_visits > 8 else 0]) if len(part)]


def trained(engine, params, sites):
    """The updates, with deltas that outlive the iteration."""
    return [replace(update, delta=update.delta.clone()) for update in engine.train(params, sites)]


def build(name, task, work=WORKS["plain"]):
    return ENGINES[name](task, work, torch.device("cpu"))


UNEQUAL = [visits(7, 24), visits(2, 3), visits(5, 17), visits(4, 0), visits(9, 41)]


@pytest.mark.parametrize(
    ("model", "work"),
    [*(("cnn 3x3", work) for work in WORKS), *((m, w) for m in ("cnn 5x5", "mlp") for w in ("plain", "all"))],
)
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_agrees_with_the_plain_loop_for_unequal_sites_and_ragged_batches(
    reference, name, model, work, synthetic_task
):
    torch.manual_seed(1)
    task, work = synthetic_task(MODELS[model]), WORKS[work]
    params = flatten(task.build_model())
    updates = trained(build(name, task, work), params, UNEQUAL)
    for update, parts in zip(updates, UNEQUAL, strict=True):
        delta, mean_loss, ends = reference(task, work, params, parts)
        if work.optimizer == "adamw" and work.eps < 1e-6:
            # the step of a parameter is near lr however small its gradient: rounding decides its sign
            assert (update.delta - delta).norm() <= 1e-3 * delta.norm()
        else:
            torch.testing.assert_close(update.delta, delta, rtol=1e-3, atol=2e-5)
        assert update.train_loss == pytest.approx(mean_loss, rel=1e-4)
        # the first batch's loss is the global model's own; a site of one batch has one loss, one without samples none
        assert (update.loss_before, update.loss_after) == pytest.approx(ends, rel=1e-4)
        assert len(parts) > 1 or update.loss_before == update.loss_after
        assert update.wall_s >= 0


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("first_step", [0, 2, 6, 12])
def test_the_learning_rate_of_a_step_is_that_of_torchs_schedulers_over_the_whole_run(
    reference, name, first_step, task
):
    work = WORKS["diloco"]
    if first_step + 6 > work.cosine_steps:
        work = work.model_copy(update={"cosine_steps": 18})
    params = flatten(task.build_model())
    (update,) = [*build(name, task, work).train(params, [visits(3, 48)], first_step=first_step)]
    expected, *_ = reference(task, work, params, visits(3, 48), first_step)
    torch.testing.assert_close(update.delta, expected, rtol=1e-3, atol=2e-5)


def test_the_learning_rate_stays_where_the_cosine_ends():
    work = WORKS["diloco"]
    assert work.lr_at(9) == work.lr_at(10**6) == pytest.approx(0.05 * 0.05)


@pytest.mark.parametrize("key", ["clip_norm", "warmup_steps", "cosine_steps", "decay_vectors"])
def test_every_part_of_the_recipe_changes_the_update(key, task):
    work, params = WORKS["diloco"], flatten(task.build_model())
    without = work.model_copy(update={key: LocalWork.model_fields[key].default})
    one, other = (trained(build("sequential", task, w), params, [visits(3, 48)]) for w in (work, without))
    assert not torch.equal(one[0].delta, other[0].delta)


def test_a_hand_written_step_is_left_out_where_it_does_not_know_the_recipe(task):
    plain = {"lr": 0.1, "batch_size": 8, "optimizer": "sgd", "local_steps": 2}
    assert "CNNStep" in build("sequential", task, LocalWork(**plain)).description
    for recipe in ({"clip_norm": 1.0}, {"warmup_steps": 2}, {"cosine_steps": 4}, {"decay_vectors": False}):
        assert "AutogradStep" in build("sequential", task, LocalWork(**plain, **recipe)).description


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_leaves_the_global_parameters_alone_and_repeats_itself_to_the_bit(name, task):
    params = flatten(task.build_model())
    before, engine = params.clone(), build(name, task)
    # a block of one: where a stack could alias the global model
    (first,) = trained(engine, params, [visits(3, 20)])
    assert first.magnitude > 1e-3
    trained(engine, params + 1, UNEQUAL)
    (again,) = trained(engine, params, [visits(3, 20)])
    assert torch.equal(params, before) and torch.equal(first.delta, again.delta)
    assert first.train_loss == again.train_loss


@pytest.mark.parametrize("work", [WORKS["plain"], WORKS["all"]], ids=["plain", "all"])
def test_the_loop_gives_a_site_the_same_bits_in_every_block(task, work):
    params = flatten(task.build_model())
    together = trained(build("sequential", task, work), params, UNEQUAL)
    for update, site in zip(together, UNEQUAL, strict=True):
        (alone,) = trained(build("sequential", task, work), params, [site])
        assert torch.equal(update.delta, alone.delta) and update.train_loss == alone.train_loss


@pytest.mark.parametrize("name", ENGINES)
def test_the_parameters_may_require_grad_or_be_a_view(reference, name, task):
    params = flatten(task.build_model())
    padded = torch.cat([torch.zeros(3), params])[3:].requires_grad_()
    (update,) = trained(build(name, task), padded, [visits(1, 9)])
    assert not update.delta.requires_grad
    expected, *_ = reference(task, WORKS["plain"], params, visits(1, 9))
    torch.testing.assert_close(update.delta, expected, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ENGINES)
def test_a_number_that_is_not_finite_reaches_the_delta(name, bad, task):
    params = flatten(task.build_model())
    params[-1] = bad
    (update,) = trained(build(name, task), params, [visits(1, 9)])
    assert not update.delta.isfinite().all()


@pytest.mark.parametrize("name", ENGINES)
def test_a_site_that_diverges_harms_no_other(reference, name, task):
    params = flatten(task.build_model())
    hot = LocalWork(lr=1e25, batch_size=8, optimizer="sgd")
    short, diverged, empty = trained(
        build(name, task, hot), params, [visits(1, 8), visits(2, 30), visits(3, 0)]
    )
    assert not diverged.delta.isfinite().all() and not empty.delta.any()
    expected, *_ = reference(task, hot, params, visits(1, 8))
    torch.testing.assert_close(short.delta, expected, rtol=1e-3, atol=0)


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


def test_the_cnn_offers_its_step_only_for_what_it_computes():
    model = CNN(3, (4, 6), 16)
    assert model.fused_step(F.cross_entropy, WORKS["plain"]) is not None
    assert model.fused_step(F.nll_loss, WORKS["plain"]) is None
    assert all(model.fused_step(F.cross_entropy, WORKS[w]) is None for w in WORKS if w != "plain")


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
    assert update.delta.shape == (30,)
    expected, *_ = reference(task, WORKS["plain"], params, visits(1, 13))
    torch.testing.assert_close(update.delta, expected, rtol=1e-3, atol=1e-5)


def test_a_read_only_memory_map_will_do(tmp_path, recwarn, task):
    np.save(tmp_path / "images.npy", task.train.inputs)
    mapped = replace(task.train, inputs=np.load(tmp_path / "images.npy", mmap_mode="r"))
    task = replace(task, train=mapped)
    params = flatten(task.build_model())
    for name in ENGINES:
        assert len(trained(build(name, task), params, [visits(1, 9)])) == 1
    assert not recwarn.list
