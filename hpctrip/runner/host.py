"""The part of a round that every rank computes: training its sites, the server step, evaluating its share.

Rank 0 has a host, too: it trains all sites if it is the only rank, else none, and applies the server step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
import torch

from hpctrip.base.errors import InputError
from hpctrip.device.meter import Meter
from hpctrip.learn.aggregate import LARGEST_UPDATE, PartialSum, magnitude_of, mean_update, origin
from hpctrip.learn.counters import EVALUATION, LOSSES, TRAINING, Tally, vector_size
from hpctrip.learn.engines.base import SiteState, SiteUpdate
from hpctrip.learn.engines.choice import choose
from hpctrip.learn.engines.optimizers import state_length
from hpctrip.learn.engines.steps import seed_draws, views
from hpctrip.learn.evaluate import eval_batches, evaluate
from hpctrip.learn.first_model import first_model
from hpctrip.learn.params import (
    buffers,
    constants,
    cosine,
    digest,
    digest_of_constants,
    flatten,
    layout,
    norm,
    num_integers,
)
from hpctrip.learn.params import num_params as count_params
from hpctrip.learn.task import Task
from hpctrip.ranks.base import Ranks, RoundTimer, build_collectively
from hpctrip.ranks.placement import Assignment, fixed_hosts
from hpctrip.record.checkpoint import Model
from hpctrip.runner.experiment import Experiment
from hpctrip.runner.signals import Signals


class Host:
    """The objects of an experiment at one rank; ranks differ only in the device. Shapes: N sites, P parameters, B
    entries of the model's buffers, of which the last I stand for integers, T counters."""

    def __init__(
        self,
        experiment: Experiment,
        num_sites: int,
        task: Task,
        ranks: Ranks,
        device: torch.device,
        hosts_kind: str = "cpu",
        meter: Meter | None = None,
    ):
        """`num_sites` is `experiment.checked_num_sites()`, which only rank 0 computes; `device` is that of this rank;
        `hosts_kind` is the device type of all hosts, by which the engine is chosen; `meter` is that of this rank's
        machine (None: not metered). Raises InputError where a component cannot be built."""
        self.experiment, self.ranks = experiment, ranks
        self.task = task = replace(task, test=experiment.evaluate.chosen(task.test))
        self.device, self.hosts_kind = device, hosts_kind
        self.seed, self.num_sites = experiment.seed, num_sites
        self.wall, self.meter = RoundTimer(ranks.phase), meter or Meter()
        self.work = experiment.train
        # errors of the first round are raised here, where all ranks can end together
        trains = ranks.rank in ranks.hosts
        self.model, alone = first_model(experiment, task, device, hosts_kind, trains)
        self.initial_params = flatten(self.model)
        """[P + B], drawn from the seed; those of rank 0 everywhere after `agree`."""
        self.constants_digest = digest_of_constants(self.model) if experiment.workload.has_own_model else ""
        """Digest of what training does not change in a model of the user's; empty where there is nothing."""
        self.num_params = num_params = count_params(self.model)
        self.num_buffers, self.num_integers = len(self.initial_params) - num_params, num_integers(self.model)
        if trains:
            experiment.compression.check(num_params, self.seed)
        self.overlap = experiment.overlap
        self.overlap.check_model(num_params, self.num_buffers, experiment.workload.model_place)
        keeps_residual, keeps_replicas = experiment.compression.keeps_residual, self.overlap.keeps_replicas
        lengths = num_params * keeps_residual, state_length(num_params, self.work)
        self.memory = SiteState(*lengths, device, num_replica=num_params * keeps_replicas)
        engine, why = choose(experiment.engine.name, hosts_kind, alone)
        self.engine = engine(task, self.work, device, experiment.engine.precision, self.model)
        self.engine_choice = f"engine {self.engine.name} ({why})"
        self.block_rule = experiment.engine.block_rule(engine)
        slots = experiment.server.checked_slots(num_params)
        self.keeps_mean = experiment.policy.compares_updates or self.overlap.delayed
        if self.keeps_mean:
            slots = torch.cat([slots, slots.new_zeros(1, num_params)])
        self.slots = slots.to(device)
        """State of the server optimiser and, if the next round needs it, the last mean update as one more row."""
        names = experiment.sites.columns().get("name", ())
        self.shards = experiment.partition.split(
            task.train.labels, task.train.groups, num_sites, self.seed, names
        )
        self.num_samples = self.shards.sizes
        self.num_visits = self.work.num_visits(self.num_samples, names)
        if trains:
            self.engine.check(experiment.workload.model_place, self.work.smallest_batch(self.num_samples))
        most_flights = num_sites * (1 + experiment.rounds.leaves_flights)  # a site may return and start again
        counters = vector_size(TRAINING, most_flights, ranks.size)
        self.partial = PartialSum(num_params, counters, device, self.num_buffers)
        self.eval_batches = eval_batches(len(task.test), experiment.evaluate.batch_size)

    def agree(self) -> None:
        """Make the first model that of rank 0 at every rank, constants included: processors of another kind may draw
        other last bits. Then bound the blocks by what the GPU of every host holds at once, as a batched computation may
        round differently for another size. A collective, before the first round. Raises InputError where the ranks have
        other models or engines, and where a GPU does not hold one site."""
        ranks, place = self.ranks, self.experiment.workload.model_place
        fixed = constants(self.model) if self.constants_digest else {}
        shapes = layout(self.model), sorted(fixed), self.engine.name
        values = digest(self.initial_params), self.constants_digest
        everyone = ranks.gather((shapes, *values)) if ranks.size > 1 else []

        def rank0_model() -> tuple[torch.Tensor, dict[str, torch.Tensor]] | None:
            for rank, (theirs, *_) in enumerate(everyone):
                if theirs != shapes:
                    problem = f"gave another model, or one for another engine, at rank {rank} than at rank 0"
                    raise InputError(place, problem, "build the same everywhere")
            if len({each[1:] for each in everyone}) < 2:
                return None
            return self.initial_params.cpu(), {name: tensor.cpu() for name, tensor in fixed.items()}

        if found := ranks.decide_on_root(rank0_model):
            params, tensors = found
            self.initial_params = params.to(self.device)
            with torch.no_grad():
                for name, tensor in fixed.items():
                    tensor.copy_(tensors[name])
        most = min(self.block_rule.most, self.num_sites)
        fits = -int(ranks.largest(np.array([-build_collectively(ranks, lambda: self._fitting(most))]))[0])
        if fits < most:
            self.block_rule = replace(self.block_rule, most=fits)

    def _fitting(self, most: int) -> int:
        """The number of sites, at most `most`, of which this rank's GPU holds a block; `most` at a rank without."""
        if self.ranks.rank not in self.ranks.hosts or self.device.type != "cuda":
            return most
        sites = np.argsort(-self.num_visits, kind="stable")[:most].tolist()
        visits = [[np.concatenate(self.visits(site, 1))[: self.work.batch_size]] for site in sites]
        return self.engine.fitting(self.initial_params, visits)

    def restore(self, model: Model | None, place: object) -> torch.Tensor:
        """Set server state and site states of this rank to those of `model`; returns its parameters [P + B]. A
        collective; `model` is used at rank 0 only. Raises InputError at `place`, its file, where it has other shapes
        than this run."""

        def tensors() -> tuple[torch.Tensor, torch.Tensor]:
            assert model is not None
            self._check_shapes(model, place)
            return torch.from_numpy(model.params), torch.from_numpy(model.slots)

        params, slots = self.ranks.decide_on_root(tensors)
        self.slots.copy_(slots)
        hosts = np.array(self.ranks.hosts)
        if self.fixed_hosts is not None:
            self.memory.rows = self._scattered(model and model.site_states, hosts[self.fixed_hosts])
        if self.experiment.rounds.leaves_flights:  # any host may keep the update of a site
            self.memory.under_way = self._scattered(
                model and model.updates, hosts[np.arange(self.num_sites) % len(hosts)]
            )
        return params.to(self.device)

    def _scattered(self, rows: Mapping[int, np.ndarray] | None, hosts: np.ndarray) -> dict[int, torch.Tensor]:
        tensors = None if rows is None else {site: torch.from_numpy(row) for site, row in rows.items()}
        return {site: row.to(self.device) for site, row in self.ranks.scatter_rows(tensors, hosts).items()}

    def collect(self, params: torch.Tensor) -> Model | None:
        """The model with parameters `params` [P + B], at rank 0; None elsewhere. Inverse of `restore`, a collective."""
        ranks = self.ranks
        slots, rows = ranks.collect(self.slots), ranks.gather_rows(self.memory.rows)
        updates = ranks.gather_rows(self.memory.under_way) if self.experiment.rounds.leaves_flights else {}
        if not ranks.is_aggregator:
            return None
        held = ({site: row.cpu().numpy() for site, row in each.items()} for each in (rows, updates))
        return Model(params.cpu().numpy(), slots.cpu().numpy(), *held)

    def _check_shapes(self, model: Model, place: object) -> None:
        hint = "resume with the hpctrip that wrote it"
        shapes = *model.params.shape, *model.slots.shape
        expected = *self.initial_params.shape, *self.slots.shape
        if shapes != expected:
            problem = f"holds a model and slots of shapes {shapes}, those of this run have {expected}"
            raise InputError(str(place), problem, hint)
        update_length = len(self.initial_params) + self.memory.NUM_LOSSES
        rows = [(site, row, self.memory.length) for site, row in model.site_states.items()]
        rows += [(site, row, update_length) for site, row in model.updates.items()]
        for site, row, length in rows:
            if not 0 <= site < self.num_sites or row.shape != (length,):
                problem = f"holds {row.shape} numbers kept by site {site}; a site keeps {length}"
                raise InputError(str(place), f"{problem}, sites are 0 to {self.num_sites - 1}", hint)

    @cached_property
    def fixed_hosts(self) -> np.ndarray | None:
        """Host of every site [N] where sites have state at their host; None: blocks are placed anew every round."""
        size, num_hosts = self.block_rule.size(self.num_sites), len(self.ranks.hosts)
        return fixed_hosts(self.num_visits, size, num_hosts) if self.memory.length else None

    def train(self, params: torch.Tensor, assignment: Assignment) -> tuple[torch.Tensor, np.ndarray]:
        """Train this rank's blocks from the global model [P + B]. Returns its partial sum of the updates that arrive
        and counters `TRAINING`, int64 [P + B + T], which the next round overwrites, and the integers of the model's
        buffers, [I] int64: the largest that one of these sites has, or the global model had before."""
        round, rank = assignment.round, self.ranks.rank
        tally = Tally(TRAINING, len(assignment.cohort), self.ranks.size)
        self.partial.begin(len(tally.vector))
        last, start = slice(len(params) - self.num_integers, None), origin(params, self.num_params)
        integers = params[last]
        constant = constants(self.model) if self.constants_digest else {}
        versions = {name: tensor._version for name, tensor in constant.items()}
        self.meter.lap("record")
        with self.wall.phase("train", round):
            began = time.perf_counter()
            norms = torch.zeros(len(assignment.cohort), dtype=torch.float64, device=self.device)
            arriving = chain(
                self._from_earlier_rounds(assignment, start), self._trained(assignment, params, start, tally)
            )
            for position, update in arriving:
                weight = float(assignment.weights[position] * assignment.discounts[position])
                if not update.usable or not self.partial.add(update.delta, weight, update.magnitude):
                    tally.note("diverged", self._culprit(update), position)
                    continue
                norms[position] = norm(update.delta[: self.num_params])
                if self.num_integers:
                    integers = integers.maximum(start[last] + update.delta[last])
                for name in LOSSES:
                    tally.note(name, getattr(update, name), position)
            # a GPU is waited for once, not once a site
            tally.note("update_norm", norms.cpu().numpy(), np.s_[:])
            tally.note("rank_train_wall_s", time.perf_counter() - began, rank)
        self.partial.tail.copy_(torch.from_numpy(tally.vector))
        for name, tensor in constants(self.model).items() if constant else ():
            if tensor is not constant.get(name) or tensor._version != versions[name]:
                problem = f"changes {name} in round {round}, which it left as it was when it was tried"
                raise InputError(
                    self.experiment.workload.model_place, problem, "change it in every forward pass"
                )
        self.meter.lap("train")
        return self.partial.vector, integers.long().cpu().numpy()

    def _from_earlier_rounds(
        self, assignment: Assignment, start: torch.Tensor
    ) -> Iterator[tuple[int, SiteUpdate]]:
        """(position, update) of the flights of earlier rounds that arrive in this one and that this rank has kept.
        Updates that will not arrive any more are forgotten."""
        for position in assignment.ended:
            update = self.memory.take(int(assignment.cohort[position]), start, self.num_params)
            if update and assignment.weights[position] > 0:
                yield position, update

    def _trained(
        self, assignment: Assignment, params: torch.Tensor, start: torch.Tensor, tally: Tally
    ) -> Iterator[tuple[int, SiteUpdate]]:
        """Train this rank's blocks. (position, update) of those that arrive in this round; the others are kept."""
        round, times = assignment.round, assignment.local_work.tolist()
        hosted = assignment.hosted(self.ranks.rank - self.ranks.hosts.start)
        cohort, visited = assignment.cohort.tolist(), assignment.visited.tolist()
        # All visits first: computed between two small sites, with cold caches, each takes much longer.
        visits = [[self.visits(cohort[i], round, times[i], visited[i]) for i in block] for block in hosted]
        for block, block_visits in zip(hosted, visits, strict=True):
            self.ranks.phase.enter("train", round)  # the watchdog's limit is one block's
            sites = [cohort[i] for i in block]
            states = [self.memory.of(site, params[: self.num_params]) for site in sites]
            optimizers = [optimizer for _, optimizer, _ in states]
            replicas = [own if own is None else self.overlap.replica(own, round) for *_, own in states]
            before = {site: self.memory.rows[site].clone() for site in sites if self.memory.length}
            others = {"replicas": replicas} if self.overlap.keeps_replicas else {}
            updates = self.engine.train(params, block_visits, optimizers, assignment.first_step, **others)
            for position, site in zip(block, sites, strict=True):
                if self.experiment.workload.has_own_model:  # the others draw nothing
                    seed_draws(self.device, self.seed, round, site)
                update = self._compressed(site, next(updates), round)
                tally.note("train_wall_s", update.wall_s, position)
                if not update.usable and site in before:  # what is not summed changes no state
                    self.memory.rows[site] = before[site]
                    if self.overlap.keeps_replicas:  # it begins anew
                        self.memory.of(site)[-1].copy_(params)
                if assignment.weights[position] > 0:
                    yield position, update
                else:
                    self.memory.keep(site, update, start, self.num_params)

    def _compressed(self, site: int, update: SiteUpdate, round: int) -> SiteUpdate:
        """The update of a site in the fragment that the round exchanges, compressed as it arrives, and zero in others;
        as it is where training diverged."""
        compression, residual = self.experiment.compression, self.memory.of(site)[0]
        part = self.overlap.part(round, self.num_params)
        if (compression.lossless and self.overlap.fragments == 1) or not update.usable:
            return update
        left = None if residual is None else residual[part]
        arriving = compression.send(update.delta[part], self.seed, round, site, left)
        if len(arriving) < len(update.delta):
            sent, arriving = arriving, torch.zeros_like(update.delta)
            arriving[part], arriving[self.num_params :] = sent, update.delta[self.num_params :]
        return replace(update, delta=arriving, magnitude=float(magnitude_of(arriving, self.num_params)))

    def _culprit(self, update: SiteUpdate) -> int:
        """Number of the first part of an unusable update that is not finite or too large: 1 for the loss, then the
        tensors of the flat vector from 2 on."""
        if not all(abs(getattr(update, name)) < LARGEST_UPDATE for name in LOSSES):
            return 1
        travelling_buffers = buffers(self.model)
        for index, (name, part) in enumerate(views(self.model, update.delta).items()):
            num_params = 0 if name in travelling_buffers else part.numel()
            if not magnitude_of(part.reshape(-1), num_params) < LARGEST_UPDATE:
                return 2 + index
        return 1

    def sites_per_block(self, num_sites: int) -> int:
        """Sites per block in a round that trains `num_sites` sites. Fixed blocks are cut once, from all N sites."""
        return self.block_rule.size(num_sites if self.fixed_hosts is None else self.num_sites)

    def visits(self, site: int, round: int, times: int = 1, visited: int = 0) -> list[np.ndarray]:
        """The samples that a site visits in a round, as `LocalWork.visits` says."""
        return self.work.visits(self.shards[site], self.seed, site, round, times, visited)

    def server_step(
        self, params: torch.Tensor, assignment: Assignment, total: torch.Tensor, integers: np.ndarray
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The server step of one round (Eq. 2), at every rank that applies it: the global model after `params` [P + B],
        and the counters of its mean update, from the sum over all ranks [P + B + T]. Model and optimiser stay
        unchanged, and there are no counters, if no update arrived.

        Diverged updates are left out, and the weights of the others are normalised: p_i / sum of the remaining p_j.
        Buffers become the mean of those of the sites, whatever the server optimiser; the integers among them are
        `integers` [I].
        """
        sums, counted, whole = total.split(
            [len(params), len(total) - len(params) - self.num_buffers, self.num_buffers]
        )
        tally = Tally(TRAINING, len(assignment.cohort), self.ranks.size, counted.cpu().numpy())
        diverged = tally.integers["diverged"].astype(bool)
        update = mean_update(sums, whole)
        if (left := float(assignment.weights[~diverged].sum())) == 0:
            return params, {}
        if diverged.any():
            update /= left
        new_params, sizes = torch.empty_like(params), [self.num_params, self.num_buffers]
        (trained, _), (mean, buffers_mean) = params.split(sizes), update.split(sizes)
        new_trained, new_buffers = new_params.split(sizes)
        slots, counters = self.slots, {"mean_update_norm": float(torch.linalg.vector_norm(mean))}
        if self.keeps_mean:
            slots, last_update = slots[:-1], slots[-1]
            if self.experiment.policy.compares_updates:
                counters["update_cosine"] = cosine(last_update, mean)
            late = last_update.clone() if self.overlap.delayed else mean
            last_update.copy_(mean)
            mean = late
        part = self.overlap.part(assignment.round, self.num_params)
        if self.overlap.fragments > 1:
            new_trained.copy_(trained)
        self.experiment.server.apply(trained[part], slots[:, part], mean[part], out=new_trained[part])
        new_buffers.copy_(origin(params, self.num_params)[self.num_params :].double() + buffers_mean)
        new_buffers[self.num_buffers - len(integers) :] = torch.from_numpy(integers)
        return new_params, counters

    def evaluate(
        self,
        params: torch.Tensor,
        assignment: Assignment,
        step: dict[str, float],
        signals: Signals | None = None,
    ) -> np.ndarray:
        """Evaluate this rank's share of the held-out data; returns its counters `EVALUATION`, int64. `step` holds the
        counters of `server_step`, and is empty at a rank that does not apply it; `signals` are those of this rank."""
        rank, hosts = self.ranks.rank, self.ranks.hosts
        self.meter.lap("exchange")
        tally = Tally(EVALUATION, len(assignment.cohort), self.ranks.size)
        if assignment.evaluate and rank in hosts:
            began = time.perf_counter()
            hosted = self.eval_batches[hosts.index(rank) :: len(hosts)]
            for name, count in evaluate(self.task, self.model, params, hosted).items():
                tally.integers[name][0] = count
            tally.note("rank_evaluate_wall_s", time.perf_counter() - began, rank)
        for name, value in {"signal": signals.received if signals else 0, **step}.items():
            tally.note(name, value, rank)
        self.meter.lap("evaluate")
        if (phases_uj := self.meter.round_uj()) is not None:
            tally.integers["metered"][rank] = 1
            for phase, drawn_uj in phases_uj.items():
                tally.integers[f"{phase}_wall_j"][rank] = drawn_uj
        return tally.vector
