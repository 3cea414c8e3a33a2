"""DiLoCo: rounds of hpctrip are what sixty lines of plain torch do."""

from __future__ import annotations

import torch
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from hpctrip.ranks.base import Ranks
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host
from hpctrip.runner.loop import train_round
from hpctrip.sim.step import State

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


def test_rounds_are_the_outer_steps_of_plain_torch():
    host = host_of()
    replicas, outer = [Replica(host, site) for site in range(SITES)], Outer(host.initial_params)
    models, _ = trained(host)
    for round, model in enumerate(models, 1):
        start = outer.params.detach().clone()
        for replica in replicas:
            vector_to_parameters(start.clone(), replica.model.parameters())
            for batch in batches_of(host, replica.site, round):
                replica.step(*batch)
        outer.step(torch.stack([replica.params - start for replica in replicas]).mean(0))
        torch.testing.assert_close(model, outer.params.detach(), rtol=0, atol=1e-6)
        assert (model - start).abs().max() > 1e-3
