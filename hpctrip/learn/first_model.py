"""The model of an experiment at the start of a run, checked and, if it is the user's, tried."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from hpctrip.base.rng import stream
from hpctrip.learn.engines.choice import EngineChoice, choose
from hpctrip.learn.engines.optimizers import state_length
from hpctrip.learn.engines.steps import seed_generators
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.overlap import Overlap
from hpctrip.learn.params import digest_of_constants
from hpctrip.learn.params import num_params as count_params
from hpctrip.learn.task import Task, checked_model
from hpctrip.learn.trial import Trial
from hpctrip.learn.workloads.base import Workload


class LearnInput(Protocol):
    """The input tables of training that the first model depends on, and the seed."""

    seed: int
    workload: Workload
    train: LocalWork
    engine: EngineChoice
    overlap: Overlap


def first_model(
    experiment: LearnInput, task: Task, device: torch.device, hosts_kind: str, trains: bool
) -> tuple[nn.Module, str]:
    """The model of a task on a device at the start of a run, checked and, if it is the user's, tried. Also the reason
    why its sites must be trained one after another, if any. `trains`: whether the rank trains. Raises InputError."""
    workload, work = experiment.workload, experiment.train
    experiment.engine.prepare(device)
    # models are initialised by global generators, seeded from a named stream like all randomness
    init_seed = int(stream(experiment.seed, "init").integers(2**63))
    seed_generators(init_seed, device)
    model = checked_model(task, device, workload.model_place, trial=trains or workload.has_own_model)
    alone = task.sequential_only
    if state_length(count_params(model), work):
        alone = alone or "sites keep their optimisers (train.keep_optimizer), each at a step of its own"
    if experiment.overlap.keeps_replicas:
        alone = alone or "sites keep models of their own ([overlap])"
    if workload.has_own_model:
        engine, _ = choose(experiment.engine.name, hosts_kind, alone)
        found = Trial(task, model, work, init_seed, workload.model_place).run(engine.name == "stacked")
        alone = alone or found
    return model, alone


def new_model(experiment: LearnInput) -> tuple[dict[str, torch.Tensor], str]:
    """The state of the first model of an input, checked and tried on this machine's processor, and the digest of its
    constants. Raises InputError."""
    workload, device = experiment.workload, torch.device("cpu")
    workload.prepare_data(experiment.seed)
    task = workload.checked_task(experiment.seed)
    model, _ = first_model(experiment, task, device, device.type, trains=True)
    held = task.build_model().state_dict().keys()  # the trial changes which buffers are persistent
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor for name, tensor in named if name in held}, digest_of_constants(model)
