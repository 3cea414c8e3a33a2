"""A small synthetic task for the engines: random images, random labels, and the models to train on them."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_, vector_to_parameters
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Dataset, Task


def random_task(build_model, num_samples=60) -> Task:
    draw = np.random.default_rng(0)
    images = (draw.random((num_samples, 28, 28)) ** 4 * 255).astype(np.uint8)
    images[:, :8] = 0  # a blank margin, as real characters have: equal maxima in every pool
    data = Dataset(images, draw.integers(5, size=num_samples))
    return Task(
        train=data,
        test=data,
        num_classes=5,
        build_model=build_model,
        prepare=lambda x: x.unsqueeze(1).float() / 255 - 0.1,
        loss=F.cross_entropy,
        source="synthetic: random images and labels",
        synthetic=True,
    )


@pytest.fixture
def synthetic_task():
    """`synthetic_task(build_model)`: the same data for any model that takes [B, 1, 28, 28] to 5 classes."""
    return random_task


@pytest.fixture
def task() -> Task:
    """The synthetic task with a small CNN."""
    torch.manual_seed(1)
    return random_task(lambda: CNN(3, (4, 6), 16, num_classes=5))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder for prepared data."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HPCTRIP_CACHE", str(folder))
    return folder


def scheduled(optimizer, work, first_step=0):
    """The learning rate of [train] by torch's own schedulers, at a step of the run."""
    warmup, decay = work.warmup_steps, work.cosine_steps - work.warmup_steps
    linear = LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)
    cosine = CosineAnnealingLR(optimizer, decay, eta_min=work.final_lr_fraction * work.lr)
    schedule = SequentialLR(optimizer, [linear, cosine], milestones=[warmup])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a schedule that goes on before the optimiser does
        for _ in range(first_step):
            schedule.step()
    return schedule


def plain_loop(task, work, params, parts, first_step=0):
    """Local training by nn.Module and torch.optim, no batch from two parts of the visits: the delta, the mean loss, and
    those of the first and last batch."""
    model = task.build_model()
    trainable = [p for p in model.parameters() if p.requires_grad]
    vector_to_parameters(params.clone(), trainable)
    start = [p.detach().clone() for p in trainable]
    common = {"lr": work.lr, "weight_decay": work.weight_decay or 0.0}
    vectors = {"params": [p for p in trainable if p.dim() < 2]}
    if not work.decay_vectors:
        vectors["weight_decay"] = 0.0
    groups = [{"params": [p for p in trainable if p.dim() > 1]}, vectors]
    if work.optimizer == "adamw":
        betas = (work.beta1, work.beta2)
        optimizer = torch.optim.AdamW(groups, betas=betas, eps=work.eps, **common)
    else:
        optimizer = torch.optim.SGD(groups, momentum=work.momentum, **common)
    schedule = scheduled(optimizer, work, first_step) if work.cosine_steps else None
    loss_sum, losses = 0.0, []
    for batch in (
        part[first : first + work.batch_size]
        for part in parts
        for first in range(0, len(part), work.batch_size)
    ):
        x = task.prepare(torch.from_numpy(task.train.inputs[batch]))
        loss = task.loss(model(x), torch.from_numpy(task.train.labels[batch]))
        loss_sum += loss.item() * len(batch)
        losses.append(loss.item())
        pull = sum(((p - p0) ** 2).sum() for p, p0 in zip(trainable, start, strict=True))
        optimizer.zero_grad()
        (loss + work.prox_mu / 2 * pull).backward()
        if work.clip_norm:
            clip_grad_norm_(trainable, work.clip_norm)
        optimizer.step()
        if schedule:
            schedule.step()
    ends = (losses[0], losses[-1]) if losses else (0.0, 0.0)
    return flatten(model) - params, loss_sum / max(1, sum(map(len, parts))), ends


@pytest.fixture(autouse=True)
def always(one_thread):
    """No engine is tried on more."""


@pytest.fixture
def reference():
    """`reference(task, work, params, parts, first_step=0)`: see `plain_loop`."""
    return plain_loop
