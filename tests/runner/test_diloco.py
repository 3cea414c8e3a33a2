"""DiLoCo: rounds of hpctrip are what sixty lines of plain torch do, also in fragments that overlap computing."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from hpctrip.base.errors import InputError
from hpctrip.learn.overlap import Overlap
from hpctrip.plan.plan import Plan, first_rounds
from hpctrip.ranks.base import Ranks
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host
from hpctrip.runner.loop import train_round
from hpctrip.sim.step import State

pytestmark = pytest.mark.usefixtures("one_thread")
H, ROUNDS, SITES = 4, 3, 2
DILOCO = (
    f"sites.num_sites={SITES}",
    "workload={kind='llm', model='scratch', adapter='full', block_tokens=8}",
    "workload={decoder={layers=2, heads=2, width=16, feed_forward=24}, sentences={roles=4, characters=400}}",
    "partition.kind=iid",
    "policy.kind=all",
    f"train={{optimizer='adamw', keep_optimizer=true, local_steps={H}, batch_size=4, lr=0.01, beta2=0.99}}",
    "train={weight_decay=0.1, decay_vectors=false, clip_norm=0.5, warmup_steps=3, cosine_steps=10}",
    "server={weights='uniform', lr=0.7, momentum=0.9, nesterov=true}",
    f"stop.max_rounds={ROUNDS}",
)


def host_of(*lines):
    """A host of DiLoCo with these lines, in this process."""
    e = read_input([], [*DILOCO, *lines]).experiment
    return Host(e, e.checked_num_sites(), e.workload.checked_task(e.seed), Ranks(), torch.device("cpu"))


def trained(host, num_rounds=ROUNDS):
    """The global models after every round, and the last state."""
    aggregator, state, params, models = Aggregator(host), State(), host.initial_params, []
    for _ in range(num_rounds):
        draft, assignment = aggregator.begin(state)
        before, (params, tail, counts) = params, train_round(host, params, assignment)
        state = aggregator.finish(draft, before, params, tail, counts)
        models.append(params.clone())
    return models, state


def batches_of(host, site, round):
    """The samples of a site's steps in a round, as hpctrip visits them."""
    task, size, visited = host.task, host.work.batch_size, (round - 1) * H * host.work.batch_size
    for batch in torch.tensor(host.visits(site, round, visited=visited)[0]).split(size):
        inputs, labels = torch.tensor(task.train.inputs[batch]), torch.tensor(task.train.labels[batch])
        yield task.prepare(inputs), labels


class Replica:
    """A site in plain torch."""

    def __init__(self, host, site):
        self.host, self.site, self.model = host, site, host.task.build_model()
        vector_to_parameters(host.initial_params.clone(), self.model.parameters())
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = {"params": [p for p in self.model.parameters() if p.dim() < 2], "weight_decay": 0.0}
        self.adamw = torch.optim.AdamW(
            [{"params": matrices}, vectors], lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1
        )
        warm_up = LinearLR(self.adamw, 1 / 3, total_iters=2)
        cosine = CosineAnnealingLR(self.adamw, 7, eta_min=0.05 * 0.01)
        self.schedule = SequentialLR(self.adamw, [warm_up, cosine], milestones=[3])

    @property
    def params(self):
        return parameters_to_vector(self.model.parameters()).detach().clone()

    def step(self, inputs, labels):
        self.adamw.zero_grad()
        self.host.task.loss(self.model(inputs), labels).backward()
        clip_grad_norm_(self.model.parameters(), 0.5)
        self.adamw.step()
        if self.schedule.last_epoch < 10:  # a cosine would rise again
            self.schedule.step()


class Outer:
    """The outer optimiser in plain torch."""

    def __init__(self, params):
        self.params = params.clone().requires_grad_()
        self.sgd = torch.optim.SGD([self.params], lr=0.7, momentum=0.9, nesterov=True)

    def step(self, mean_change):
        self.params.grad = -mean_change
        self.sgd.step()


@pytest.mark.parametrize("delayed", [False, True])
def test_rounds_are_the_outer_steps_of_plain_torch(delayed):
    """Of this round's mean update, or of that of the round before."""
    host = host_of(f"overlap.delayed={str(delayed).lower()}")
    replicas, outer = [Replica(host, site) for site in range(SITES)], Outer(host.initial_params)
    models, _ = trained(host)
    late = torch.zeros_like(host.initial_params)
    for round, model in enumerate(models, 1):
        start = outer.params.detach().clone()
        for replica in replicas:
            vector_to_parameters(start.clone(), replica.model.parameters())
            for batch in batches_of(host, replica.site, round):
                replica.step(*batch)
        mean = torch.stack([replica.params - start for replica in replicas]).mean(0)
        outer.step(late if delayed else mean)
        late = mean
        torch.testing.assert_close(model, outer.params.detach(), rtol=0, atol=1e-6)
        assert (model - start).abs().max() > 1e-3 or (delayed and round == 1)


@pytest.mark.parametrize(("num", "steps", "blend"), [(1, 1, 1.0), (2, 0, 1.0), (3, 2, 0.5)])
def test_fragments_are_exchanged_in_turn_and_taken_in_some_steps_later(num, steps, blend):
    """As Streaming DiLoCo: replicas go on from their own weights."""
    host = host_of(f"overlap={{fragments={num}, steps={steps}, blend={blend}}}")
    replicas, outer = [Replica(host, site) for site in range(SITES)], Outer(host.initial_params)
    size = len(outer.params)
    velocity, model = torch.zeros(size), host.initial_params.clone()
    models, _ = trained(host, 5)
    arriving = slice(0, 0)
    for round, found in enumerate(models, 1):
        number = (round - 1) % num
        sent = slice(number * size // num, (number + 1) * size // num)
        for replica in replicas:
            for step, batch in enumerate(batches_of(host, replica.site, round)):
                if step == steps:
                    mine = replica.params
                    mine[arriving] = blend * model[arriving] + (1 - blend) * mine[arriving]
                    vector_to_parameters(mine, replica.model.parameters())
                replica.step(*batch)
        change = torch.stack([replica.params - model for replica in replicas]).mean(0)[sent]
        velocity[sent] = 0.9 * velocity[sent] + change
        model[sent] += 0.7 * (change + 0.9 * velocity[sent])
        arriving = sent
        torch.testing.assert_close(found, model, rtol=0, atol=1e-6)


def test_one_fragment_that_is_taken_in_at_once_is_diloco_to_the_bit(monkeypatch):
    expected, _ = trained(host_of())
    monkeypatch.setattr(Overlap, "keeps_replicas", True)
    host = host_of()
    found, _ = trained(host)
    assert len(host.memory.rows) == SITES and host.memory.length > 3 * host.num_params
    assert all(map(torch.equal, found, expected))


def test_a_site_that_diverges_begins_anew_at_the_global_model(monkeypatch):
    host = host_of("overlap.fragments=2", "server.on_diverged=drop")
    batch, inputs = next(batches_of(host, 1, 2)), []

    def loss(logits, labels, given=host.task.loss):
        inputs.append(labels)
        return given(logits, labels) * (float("nan") if torch.equal(labels, batch[1]) else 1.0)

    host.engine.step.loss = loss
    models, _ = trained(host, 2)
    own = host.memory.of(1)[-1]
    assert inputs and torch.equal(own, models[0]) and not torch.equal(host.memory.of(0)[-1], models[0])


def test_the_models_of_sites_are_in_the_plan_and_a_transfer_has_the_bytes_of_a_fragment():
    whole, parts = host_of(), host_of("overlap.fragments=4", "network.update_bytes=auto")
    plans = [
        Plan(aggregator, first_rounds(aggregator, 1), None, 1.0, 1.0)
        for aggregator in map(Aggregator, (whole, parts))
    ]
    kept = [plan.memory["kept"] for plan in plans]
    assert kept[1] - kept[0] == SITES * 4 * whole.num_params
    world = plans[1].aggregator.world
    assert world.update_bytes == world.model_bytes == 4 * -(-whole.num_params // 4)
    assert plans[1].aggregator.updates.endswith("one of 4 fragments of the model")


def test_a_model_that_has_no_such_fragments_is_refused():
    with pytest.raises(InputError, match=r"overlap.fragments = 10000: is more than the 8,528 parameters"):
        host_of("overlap.fragments=10_000")
    with pytest.raises(InputError, match="has buffers, such as running means"):
        Overlap(fragments=2).check_model(10, 1, "workload.model")
