"""Evaluation counts in integers over fixed batches."""

from collections import defaultdict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from hpctrip.learn.evaluate import LOSS_CEILING, LOSS_SCALE, Evaluate, eval_batches, evaluate
from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Dataset


def test_batches_cover_the_test_set_once_at_fixed_boundaries():
    assert eval_batches(1100, 500) == [slice(0, 500), slice(500, 1000), slice(1000, 1100)]
    assert eval_batches(0) == []


def test_the_counts_are_those_of_one_plain_pass(task):
    model = task.build_model()
    params = flatten(model)
    x, y = task.prepare(torch.from_numpy(task.test.inputs)), torch.from_numpy(task.test.labels)
    logits = model(x)
    counts = evaluate(task, task.build_model(), params, eval_batches(60, 16))
    assert all(type(count) is int for count in counts.values())
    assert (counts["correct"], counts["seen"]) == (int((logits.argmax(1) == y).sum()), 60)
    assert counts["loss_sum"] / LOSS_SCALE / 60 == pytest.approx(F.cross_entropy(logits, y).item(), abs=1e-5)


def test_a_part_of_the_test_set_is_a_random_one():
    """The first hundred of samples that are sorted by class would be those of five classes of 62."""
    labels = np.repeat(np.arange(62), 20)
    test = Dataset(np.arange(len(labels)), labels)
    chosen = Evaluate(max_samples=100).chosen(test)
    assert len(set(chosen.inputs.tolist())) == 100 and (labels[chosen.inputs] == chosen.labels).all()
    assert len(set(chosen.labels.tolist())) > 40
    assert chosen.inputs.tolist() == Evaluate(max_samples=100).chosen(test).inputs.tolist()
    assert Evaluate(max_samples=1240).chosen(test) is Evaluate().chosen(test) is test


def test_whoever_evaluates_which_batch_the_sum_is_the_same(task):
    model = task.build_model()
    params, batches = flatten(model), eval_batches(60, 16)
    whole = evaluate(task, model, params, batches)
    for ranks in (2, 3, 5):
        parts = [evaluate(task, model, params, batches[rank::ranks]) for rank in range(ranks)]
        assert {name: sum(part[name] for part in parts) for name in whole} == whole
    assert evaluate(task, model, params, []) == {"correct": 0, "seen": 0, "loss_sum": 0}


def test_the_given_parameters_count_not_the_models_own(task):
    model = task.build_model()
    own = flatten(model)
    always_class_2 = torch.zeros_like(own)
    always_class_2[-3] = 1.0
    counts = evaluate(task, model, always_class_2, eval_batches(60))
    assert counts["correct"] == (task.test.labels == 2).sum()
    assert torch.equal(flatten(model), own)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_counts_as_the_ceiling(bad, task):
    model = task.build_model()
    params = flatten(model)
    params[-1] = bad
    counts = evaluate(task, model, params, eval_batches(60, 16))
    assert (counts["seen"], counts["loss_sum"]) == (60, 60 * LOSS_CEILING * LOSS_SCALE)
    assert 0 <= counts["correct"] <= 60


class Shapes(TorchDispatchMode):
    """The shapes that each operator was called with."""

    def __init__(self):
        super().__init__()
        self.of = defaultdict(list)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.of[func.overloadpacket.__name__].append(tuple(getattr(args[0], "shape", ()))) if args else None
        return func(*args, **(kwargs or {}))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")
@pytest.mark.parametrize(
    ("kernel", "channels", "in_channels", "side"), [(3, (4, 6), 1, 28), (5, (16, 3), 3, 30)]
)
def test_the_cnn_without_gradients_is_the_same_in_the_layout_and_parts_of_evaluation(
    kernel, channels, in_channels, side
):
    torch.manual_seed(2)
    model, x = CNN(kernel, channels, 16, 5, in_channels, side), torch.randn(300, in_channels, side, side)
    with torch.no_grad(), Shapes() as shapes:
        logits = model(x)
    torch.testing.assert_close(logits, model(x).detach(), rtol=1e-5, atol=1e-6)
    assert [n for n, *_ in shapes.of["mkldnn_max_pool2d"]] == [125, 125, 125, 125, 50, 50]
    assert "max_pool2d_with_indices" not in shapes.of
