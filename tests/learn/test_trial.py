"""A model that is not hpctrip's own is tried before the first round: it keeps what training assumes, or is refused."""

import functools
import os
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hpctrip.base.errors import InputError
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.steps import seed_generators
from hpctrip.learn.evaluate import evaluate
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import buffers, constants, digest, digest_of_constants, flatten
from hpctrip.learn.task import Dataset, Task, checked_model
from hpctrip.learn.trial import Trial

CPU = torch.device("cpu")
WORK = LocalWork(lr=0.1, batch_size=4, local_epochs=1, optimizer="sgd", weight_decay=0.0)


def points(build_model, loss=F.cross_entropy, prepare=lambda x: x):
    """Points of two classes (synthetic), 40 to train on and 10 to test on."""
    x = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    train, test = (Dataset(x[part], y[part]) for part in (np.s_[:40], np.s_[40:]))
    return Task(train, test, 2, build_model, prepare, loss)


def tried(task, work=WORK, stacked=True):
    """The model after its trial, and the reason why its sites are trained one after another."""
    seed_generators(7, CPU)
    model = checked_model(task, CPU, "the model", trial=True)
    return model, Trial(task, model, work, 7, "the model").run(stacked)


def linear(forward=None, **attributes):
    """A class of linear models with another forward pass, and these attributes made anew for every model."""

    class Model(nn.Linear):
        def __init__(self):
            super().__init__(8, 2)
            for name, make in attributes.items():
                value = make()
                if isinstance(value, torch.Tensor):
                    self.register_buffer(name, value)
                else:
                    setattr(self, name, value)

        def forward(self, x):
            return forward(self, x) if forward else super().forward(x)

    return Model


def plainly(self, x):
    return F.linear(x, self.weight, self.bias)


def counting(self, x):
    self.steps += self.training
    return plainly(self, x) / (1 + self.steps)


def appending(self, x):
    self.log.append(float(x.sum()))
    return plainly(self, x)


def with_cache(self, x):
    self.last = plainly(self, x)
    return self.last


TOTAL = [0]


def with_a_global(self, x):
    TOTAL[0] += self.training
    return plainly(self, x) / (1 + TOTAL[0])


def with_a_generator(self, x):
    return plainly(self, x) + (torch.from_numpy(self.draw.normal(size=2)).float() if self.training else 0)


def with_noise_in_evaluation(self, x):
    return plainly(self, x) + torch.rand(2)


def noisy(self, x):
    return plainly(self, x) + (np.random.normal() if self.training else 0)


def late(self, x):
    if not hasattr(self, "head"):
        self.head = nn.Linear(2, 2)
    return self.head(plainly(self, x))


class Teacher(nn.Linear):
    """Its frozen copy follows the trained one."""

    def __init__(self):
        super().__init__(8, 2)
        self.teacher = nn.Parameter(torch.zeros(2, 8), requires_grad=False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.teacher.lerp_(self.weight, 0.1)
        return plainly(self, x) + F.linear(x, self.teacher)


class ByMode(nn.Linear):
    def __init__(self):
        super().__init__(8, 2)

    def train(self, mode=True):
        return super().train(mode).requires_grad_(mode)


class Growing(nn.Linear):
    def __init__(self):
        super().__init__(8, 2)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x):
        if self.training:
            self.seen = torch.cat([self.seen, x.mean().detach()[None]])
        return plainly(self, x)


def buffered(start):
    """A model with a buffer that training changes, from `start`."""

    def forward(self, x):
        if self.training:
            self.buffer = self.buffer + 1
        return plainly(self, x)

    return linear(forward, buffer=lambda: start.clone())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (linear(counting, steps=int), "changes steps in training"),
        (linear(appending, log=list), "changes log["),
        (linear(with_a_global), "gives other outputs for the same parameters"),
        (linear(with_a_generator, draw=lambda: np.random.default_rng(0)), "gives other outputs"),
        (linear(with_noise_in_evaluation), "draws random numbers in evaluation"),
        (linear(late), "makes or drops head.bias when it is called"),
        (Teacher, "changes the parameter teacher, which is not trained"),
        (ByMode, "other trainable parameters after train() than after eval()"),
        (Growing, "changes its buffer seen from float32 [0] to float32 [1]"),
        (
            buffered(torch.tensor(0.0, dtype=torch.float64)),
            "changes its buffer buffer, float64 []; only float32",
        ),
        (buffered(torch.tensor(1j)), "changes its buffer buffer, complex64 []"),
        (buffered(torch.tensor(2**24)), "changes its buffer buffer; integers are kept up to 16,777,216"),
        (functools.cache(linear()), "was built before: two calls give the same"),
        (
            linear(
                lambda self, x: plainly(self, x) + self.noise,
                noise=lambda: torch.tensor(os.getrandom(9)[0] / 1),
            ),
            "differs from call to call, whatever the seed (noise)",
        ),
        (linear(lambda self, x: plainly(self, x).detach()), "a loss that depends on no trainable parameter"),
        (lambda: torch.jit.script(nn.Linear(8, 2)), "a scripted or traced model; return the module before"),
    ],
)
def test_a_model_whose_state_ranks_and_resumed_runs_would_not_know_is_refused(model, words):
    with pytest.raises(InputError) as error:
        tried(points(model))
    assert words in str(error.value) and len(error.value.faults) == 1, error.value


def test_what_is_only_remembered_does_no_harm():
    assert tried(points(linear(with_cache, last=lambda: None)))[1] == ""


def test_prepared_inputs_are_one_tensor():
    with pytest.raises(InputError, match="gave a tuple as its prepared inputs; it must be a Tensor"):
        tried(points(linear(), prepare=lambda x: (x, x)))


class Centres(nn.Module):
    def __init__(self, trained):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(2), requires_grad=trained)
        self.steps = 0

    def forward(self, outputs, labels):
        self.steps += 1
        return F.cross_entropy(outputs - self.centres, labels)


@pytest.mark.parametrize(
    ("trained", "words"),
    [
        (True, "a loss with parameters of its own; make them part of the model"),
        (False, "changes loss['steps']"),
    ],
)
def test_a_loss_has_neither_parameters_nor_a_state(trained, words):
    with pytest.raises(InputError) as error:
        tried(points(linear(), Centres(trained)))
    assert words in str(error.value)


def test_a_model_may_work_on_its_inputs_in_place():
    task = points(lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 2)))
    before = task.test.inputs.copy(), task.train.inputs.copy()
    model, _ = tried(task)
    engine = Sequential(task, WORK, model=model)
    engine.check("workload", 4)
    list(engine.train(flatten(model), [[np.arange(8)]]))
    evaluate(task, model, flatten(model), [slice(5)])
    assert np.array_equal(task.test.inputs, before[0]) and np.array_equal(task.train.inputs, before[1])


class FirstBatch(nn.Linear):
    """It begins at the scale of its first batch."""

    def __init__(self):
        super().__init__(8, 2)
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("is_begun", torch.tensor(False))

    def forward(self, x):
        if self.training and not self.is_begun:
            self.scale.data.copy_(x.std(0))
            self.is_begun.fill_(True)
        return plainly(self, x * self.scale)


def test_a_forward_pass_may_change_trained_parameters():
    model, _ = tried(task := points(FirstBatch))
    assert torch.equal(model.scale, torch.ones(8)) and not model.is_begun
    (update,) = Sequential(task, WORK, model=model).train(flatten(model), [[np.arange(8)]])
    assert update.delta[-1] == 1 and update.delta[18:26].any()


def test_a_model_that_drops_the_dimension_of_a_batch_of_one_is_refused():
    task = points(linear(lambda self, x: plainly(self, x).squeeze(0)))
    model, _ = tried(task, stacked=False)
    with pytest.raises(InputError, match=r"outputs \[2\] for labels \[1\]; keep the dimension of the batch"):
        evaluate(task, model, flatten(model), [slice(9, 10)])


def norm():
    return nn.Sequential(nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 2))


def weighted(outputs, labels):
    return F.cross_entropy(outputs, labels, weight=torch.tensor([1.0, 20.0]))


@pytest.mark.parametrize(
    ("task", "reason", "has_parts"),
    [
        (points(linear()), "", True),
        (points(linear(), weighted), "the loss of a batch is not the mean of its samples' losses", False),
        (points(norm), "samples meet in a batch of its model", False),
        (points(linear(), prepare=lambda x: x - x.mean(0)), "samples meet in a batch of its model", False),
        (
            points(lambda: nn.Sequential(nn.Linear(8, 2), nn.Dropout(0.5))),
            "draws random numbers in training",
            True,
        ),
        (points(linear(noisy)), "draws random numbers in training", True),
        (
            points(linear(lambda s, x: plainly(s, x) * len({x.data_ptr()}))),
            "torch.func.vmap cannot map",
            True,
        ),
        (
            points(lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))),
            "has the buffer 0.running_mean",
            False,
        ),
    ],
)
def test_engines_assume_only_what_the_trial_has_shown(task, reason, has_parts):
    """Parts of a batch add up to it where samples do not meet, and the loss is a mean."""
    found = tried(task)[1]
    assert reason in found and bool(reason) == bool(found)
    parts = WORK.model_copy(update={"micro_batch": 2})
    if has_parts:
        tried(task, parts)
    else:
        with pytest.raises(InputError, match=r"train.micro_batch = 2: .*; leave it out"):
            tried(task, parts)


def test_a_sum_of_losses_is_refused():
    with pytest.raises(InputError, match="is trained on the sum of its samples' losses"):
        tried(points(linear(), functools.partial(F.cross_entropy, reduction="sum")))


class Varied(nn.Module):
    """Constants of every sort, and buffers that training changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("prime", torch.tensor(2654435761))
        self.register_buffer("begin", torch.tensor(1700000050.25, dtype=torch.float64))
        self.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
        self.register_buffer("phase", torch.tensor(1j))
        self.register_buffer("random", torch.randn(8), persistent=False)
        self.register_buffer("low", torch.tensor(float("inf")))
        self.features = nn.Linear(8, 8).requires_grad_(False)
        self.norm, self.head, self.spare = nn.BatchNorm1d(8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.scale = random.random() + np.random.rand()

    def forward(self, x):
        if self.training:
            self.low = torch.minimum(self.low, x.detach().min())
        return self.head(self.norm(self.features(x * self.random)).relu()) * self.scale


def test_only_what_training_changes_travels():
    model, _ = tried(points(Varied))
    assert {*buffers(model)} == {"low", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert {*constants(model)} == {
        "prime",
        "begin",
        "mask",
        "phase",
        "random",
        "features.weight",
        "features.bias",
    }
    assert model.prime == 2654435761 and model.begin == 1700000050.25


def test_a_tried_model_is_new_and_equal_everywhere():
    (one, _), (other, _) = (tried(points(Varied)) for _ in range(2))
    seed_generators(7, CPU)
    new = Varied()
    assert digest(flatten(one)) == digest(flatten(other)) and one.scale == other.scale == new.scale
    assert digest_of_constants(one) == digest_of_constants(other) != ""
    assert (
        one.low == np.inf
        and one.norm.num_batches_tracked == 0
        and torch.equal(one.norm.running_var, torch.ones(8))
    )
    assert torch.equal(one.head.weight, new.head.weight)


def test_training_leaves_the_model_that_is_evaluated_in_training_mode():
    """One model serves both: dropout and batch statistics come back after an evaluation."""
    task = points(lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)))
    model, _ = tried(task)
    engine, params, deltas = Sequential(task, WORK, model=model), flatten(model), []
    for _ in range(2):
        seed_generators(1, CPU)
        deltas += [update.delta.clone() for update in engine.train(params, [[np.arange(8)]])]
        evaluate(task, model, params, [slice(5)])
    assert torch.equal(*deltas)


class Experts(nn.Module):
    """A sample trains one of two experts."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 2) for _ in range(2))
        self.table = nn.Embedding(4, 2, sparse=True)

    def forward(self, x):
        choice, out = (x[:, 0] > 0).long(), x.new_zeros(len(x), 2)
        for number, expert in enumerate(self.experts):
            rows = choice == number
            if rows.any():
                out[rows] = expert(x[rows])
        return out + self.table(choice)


@pytest.mark.parametrize("keys", [{}, {"prox_mu": 0.1, "weight_decay": 0.01}, {"optimizer": "adamw"}])
def test_a_parameter_without_samples_has_gradient_0_and_sparse_gradients_are_dense(keys, reference):
    task, work = points(Experts), WORK.model_copy(update=keys)
    model, _ = tried(task, work)
    parts = [np.flatnonzero(task.train.labels == 0)]
    params = flatten(model)
    (update,) = Sequential(task, work, model=model).train(params, [parts])
    assert bool(update.delta[18:36].any()) == ("weight_decay" in keys)  # the second expert

    def with_dense_table():
        built = Experts()
        built.table.sparse = False
        return built

    expected, *_ = reference(points(with_dense_table), work, params, parts)
    torch.testing.assert_close(update.delta, expected, rtol=1e-4, atol=1e-6)
