"""One run: the experiment's parts put together, and what each step of the main loop does with them."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from hpctrip.app.config import Experiment, Stop
from hpctrip.app.signals import received
from hpctrip.base.errors import DivergedError
from hpctrip.base.rng import stream
from hpctrip.base.units import GB
from hpctrip.learn.aggregate import LARGEST_UPDATE, PartialSum, mean_update
from hpctrip.learn.compression import Compressor
from hpctrip.learn.engines import choose
from hpctrip.learn.engines.base import SiteWork
from hpctrip.learn.evaluate import Counts, eval_batches, evaluate
from hpctrip.learn.params import flatten
from hpctrip.learn.task import Task
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.phase import Wall, current_phase
from hpctrip.ranks.placement import Blocks, cut, cut_at_fixed_borders, fixed_hosts, place
from hpctrip.sim.policies.base import Decision
from hpctrip.sim.rounds import CohortRound, History, RoundRow, Status
from hpctrip.sim.simulation import Simulation

_LARGEST_EXPONENT = math.log(sys.float_info.max)
_LOSS_POINT = 2.0**20  # training losses travel as integers of this resolution, so that their sum has no order


@dataclass(frozen=True)
class State:
    """What survives a round at the aggregator, besides the model: nothing else does."""

    round: int = 0
    clock_s: float = 0.0
    history: History = field(default_factory=History)
    stop_reason: str = ""


@dataclass(frozen=True)
class Plan:
    """What the aggregator tells every rank about the next round. Arrays [k] in the policy's order."""

    round: int
    cohort: np.ndarray
    weights: np.ndarray
    """p_i (Eq. 1) over the sites whose updates arrive, sum 1; 0 for the others. All 0 where none arrives."""
    blocks: Blocks
    """Positions into the cohort of the sites whose updates arrive: nobody else is trained."""
    block_hosts: np.ndarray
    """Host (index into ranks.hosts) of every block."""
    evaluate: bool

    def hosted(self, host: int) -> list[np.ndarray]:
        """The blocks of one host."""
        return [self.blocks[i] for i in (self.block_hosts == host).nonzero()[0].tolist()]


class Run:
    """The parts of one experiment on one rank. Methods are the steps of app.loop, in its order."""

    def __init__(
        self, experiment: Experiment, task: Task, ranks: Ranks, device: torch.device, hosts_kind: str = "cpu"
    ):
        """`device` is this rank's; `hosts_kind` is the kind that the hosts train on, which decides about the engine."""
        self.experiment, self.task, self.ranks, self.device = experiment, task, ranks, device
        self.seed = experiment.seed
        self.wall = Wall()
        self.signals = np.zeros(ranks.size, dtype=np.int64)
        """At rank 0: what every rank had received by the last round's end."""
        self.rank_wall_s = np.zeros((2, ranks.size))
        """At rank 0: seconds that every rank has spent in training and in evaluation."""
        self.num_rounds = 0
        """At rank 0: rounds since this process started; a resumed run has more."""
        self.work = experiment.workload.local_work(experiment.train)
        engine, why = choose(experiment.engine.name, hosts_kind, task.sequential_only)
        self.engine = engine(task, self.work, device, experiment.engine.precision)
        self.engine_choice = f"engine {engine.name} ({why})"
        self.sites_per_block = experiment.engine.sites_per_block or self.engine.sites_per_block
        # torch's own generator initialises models; its seed derives from a named stream like all randomness
        torch.manual_seed(int(stream(self.seed, "init").integers(2**63)))
        self.model = task.build_model().to(device)
        self.initial_params = flatten(self.model)
        self.slots = experiment.server.initial_slots(len(self.initial_params)).to(device)
        distances = experiment.sites.distances_m(self.seed)
        experiment.policy.check(len(distances))
        experiment.faults.check(experiment.timing)
        self.shards = experiment.partition.split(
            task.train.labels, task.train.groups, num_sites=len(distances), seed=self.seed
        )
        self.num_samples = np.array([len(shard) for shard in self.shards])
        self.num_visits = self.work.num_visits(self.num_samples)
        self.compressor = Compressor(experiment.compression, self.seed)
        self.partial = PartialSum(len(self.initial_params), self.num_tail(len(distances)), device)
        self.fixed_hosts = (
            fixed_hosts(self.num_visits, self.sites_per_block, len(ranks.hosts))
            if experiment.compression.keeps_residual
            else None
        )
        """Host of every site [N] where sites keep a residual at their host; None: any host, placed every round."""
        self.eval_batches = eval_batches(
            min(len(task.test), experiment.evaluate.max_samples or len(task.test)),
            experiment.evaluate.batch_size,
        )
        if ranks.is_aggregator:  # nobody else looks at the simulated world
            e, self.world = experiment, experiment.world(len(self.initial_params))
            self.simulation = Simulation(self.world, e.profiler, e.policy, self.num_visits, self.seed)

    @property
    def updates(self) -> str:
        """The size of an update on the simulated WAN, in words; at rank 0."""
        rule, size = self.experiment.compression, f"{self.world.update_bytes / GB:g} GB"
        fraction = rule.sent_fraction(len(self.initial_params))
        whole = f"{self.world.model_bytes / GB:g} GB"
        return size if fraction == 1 else f"{size} ({rule.kind}: {fraction:.2%} of {whole})"

    # 1. the aggregator's decision

    def plan(self, state: State) -> Plan | None:
        """The next round, or None where `state` is final."""
        if state.stop_reason:
            return None
        self.wall.start()
        round = state.round + 1
        decision = self.decide(state)
        cohort = decision.cohort
        self._candidates = decision.candidates
        self._timing = self.world.round_timing(round, state.clock_s, cohort, self._view.compute_s)
        arrive = np.flatnonzero(self._timing.status == Status.ARRIVED)
        samples = self.num_samples[cohort[arrive]].astype(np.float64)
        shares = samples if self.experiment.server.weights == "samples" else np.ones(len(arrive))
        weights = np.zeros(len(cohort))
        weights[arrive] = shares / shares.sum()
        blocks, block_hosts = self.place(cohort[arrive])
        evaluated = self.experiment.evaluate.due(round, self.experiment.stop.max_rounds)
        blocks = replace(blocks, positions=arrive[blocks.positions])
        return Plan(round, cohort, weights, blocks, block_hosts, evaluated)

    def place(self, sites: np.ndarray) -> tuple[Blocks, np.ndarray]:
        """Blocks of the sites that train, as positions into `sites`, and the host of each."""
        if self.fixed_hosts is not None:
            blocks = cut_at_fixed_borders(sites, self.sites_per_block)
            return blocks, self.fixed_hosts[sites[blocks.positions[blocks.starts[:-1]]]]
        blocks = cut(sites, self.sites_per_block)
        return blocks, place(blocks.sums(self.num_visits[sites]), len(self.ranks.hosts))

    def decide(self, state: State) -> Decision:
        """What the policy chooses after `state`."""
        self._view = self.simulation.view(state.clock_s, state.history)
        return self.simulation.decide(self._view, state.history)

    # 2., 3. what every host does

    def train_hosted(self, params: torch.Tensor, plan: Plan) -> torch.Tensor:
        """Train this rank's blocks: its share of the sum, [P + T] int64, valid until the next round.

        The tail holds, per site of the cohort, whether its update was left out because it diverged, wall nanoseconds
        and the mean loss in fixed point, then the training nanoseconds of every rank: [k + k + k + size]."""
        k, rank = len(plan.cohort), self.ranks.rank
        known = (
            self.experiment.compression.lossless
        )  # then what arrives is as large as what the engine yields
        tail = np.zeros(self.num_tail(k), dtype=np.int64)
        self.partial.begin(len(tail))
        with self.wall.phase("train", plan.round):
            began = time.perf_counter_ns()
            hosted = plan.hosted(rank - self.ranks.hosts.start)
            # All orders at once: between two small sites, with cold caches, each takes several times as long.
            work = [
                [SiteWork(site, self.order(site, plan.round)) for site in plan.cohort[block].tolist()]
                for block in hosted
            ]
            for block, sites in zip(hosted, work, strict=True):
                current_phase.enter("train", plan.round)  # the watchdog's limit is one block's
                for position, update in zip(block, self.engine.train(params, sites), strict=True):
                    loss, weight = update.mean_loss, float(plan.weights[position])
                    usable = abs(loss) < LARGEST_UPDATE
                    if usable and self.partial.add(
                        self.compressor(update.site, plan.round, update.delta),
                        weight,
                        update.magnitude if known else None,
                    ):
                        tail[2 * k + position] = int(loss * _LOSS_POINT)
                    else:
                        tail[position] = 1
                    tail[k + position] = int(update.wall_s * 1e9)
            tail[3 * k + rank] = time.perf_counter_ns() - began
        self.partial.tail.copy_(torch.from_numpy(tail))
        return self.partial.vector

    def num_tail(self, k: int) -> int:
        """T: counters that travel with the sum for a cohort of k."""
        return 3 * k + self.ranks.size

    def order(self, site: int, round: int) -> np.ndarray:
        """Training samples in the order in which the site visits them this round, [num_visits]."""
        shard, rng = self.shards[site], stream(self.seed, "order", round, site)
        num_visits = self.num_visits[site]
        epochs = [rng.permutation(shard) for _ in range(math.ceil(num_visits / len(shard)))]
        return np.concatenate(epochs)[:num_visits]

    # 4. where the model lives

    def step(self, params: torch.Tensor, plan: Plan, total: torch.Tensor) -> torch.Tensor:
        """The new global model (Eq. 2), by the server optimiser, from the sum over all ranks [P + T]. Unchanged, and
        the optimiser too, where no update arrived.

        Where sites were left out, the others' mean is that over their own weights: p_i / sum of the p_j left.
        """
        num_params, k = len(params), len(plan.cohort)
        update = mean_update(total[:num_params])
        dropped = total[num_params : num_params + k].cpu().numpy() > 0
        left = float(plan.weights[~dropped].sum())
        if left == 0:
            return params
        if dropped.any():
            update /= left
        return self.experiment.server.step(params, self.slots, update)

    # 5. every host's slice of the evaluation

    def evaluate_hosted(self, params: torch.Tensor, plan: Plan) -> np.ndarray:
        """[3 + size + size] int64: correct, seen, fixed-point loss; then of every rank the evaluation nanoseconds and
        the signal that it has received."""
        size = self.ranks.size
        counts = np.zeros(3 + 2 * size, dtype=np.int64)
        if plan.evaluate and self.ranks.rank in self.ranks.hosts:
            began = time.perf_counter_ns()
            hosted = self.eval_batches[self.ranks.hosts.index(self.ranks.rank) :: len(self.ranks.hosts)]
            counts[:3] = evaluate(self.task, self.model, params, hosted).values.numpy()
            counts[3 + self.ranks.rank] = time.perf_counter_ns() - began
        counts[3 + size + self.ranks.rank] = received()
        return counts

    # 6. the aggregator's record

    def advance(
        self, state: State, plan: Plan, change: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """The state after the round: the virtual clock moves, one row is added, the stop rules are asked.

        `change` [P] is what the round did to the global model; `tail` and `counts` are the sums over all ranks.
        """
        k, cohort = len(plan.cohort), plan.cohort
        dropped, wall_s, losses, rank_wall_s = np.split(tail, [k, 2 * k, 3 * k])
        wall_s, losses, rank_wall_s = wall_s / 1e9, losses / _LOSS_POINT, rank_wall_s / 1e9
        timing = self._timing
        if self.experiment.timing.compute == "measured":
            work_s = self._view.compute_s.copy()
            work_s[cohort] = wall_s
            timing = self.world.round_timing(plan.round, state.clock_s, cohort, work_s)
        status = np.where(dropped > 0, Status.DIVERGED, timing.status)
        arrived = status == Status.ARRIVED
        if dropped.any() and self.experiment.server.on_diverged == "stop":
            first, *others = cohort[dropped > 0]
            more = f" (and {len(others)} more)" if others else ""
            raise DivergedError(
                f"site {first}{more}, round {plan.round}: the training loss or an entry of the update is not finite "
                f"or beyond {LARGEST_UPDATE:g}: training diverged; lower train.lr"
            )
        if dropped.any() and not arrived.any():
            raise DivergedError(f"round {plan.round}: the update of every site diverged; lower train.lr")
        losses[~arrived] = math.nan
        visits = np.where(timing.status == Status.ARRIVED, self.num_visits[cohort], 0)
        correct, seen = int(counts[0]), int(counts[1])
        accuracy = correct / seen if seen else math.nan
        loss = Counts(counts).mean_loss if seen else math.nan
        clock_s = state.clock_s + timing.makespan_s
        hosts_wall_s = rank_wall_s[self.ranks.hosts.start :]
        self.num_rounds += 1
        self.rank_wall_s += rank_wall_s, counts[3 : 3 + self.ranks.size] / 1e9
        row = RoundRow(
            round=plan.round,
            clock_start_s=state.clock_s,
            clock_s=clock_s,
            makespan_s=timing.makespan_s,
            num_sites=k,
            num_arrived=int(arrived.sum()),
            voted_num_sites=self._candidates.vote if self._candidates else 0,
            straggler=int(cohort[timing.straggler]),
            straggler_compute_s=float(timing.compute_s[timing.straggler]),
            straggler_comm_s=float(timing.comm_s[timing.straggler]),
            num_samples=int(visits.sum()),
            accuracy=accuracy,
            eval_correct=correct,
            eval_seen=seen,
            eval_loss=loss,
            eval_perplexity=math.inf if loss > _LARGEST_EXPONENT else math.exp(loss),
            train_loss=_weighted_mean(losses[arrived], visits[arrived]),
            efficiency=_efficiency(state.history, accuracy, clock_s),
            update_norm=float(torch.linalg.vector_norm(change)),
            wall_s=self.wall.end(),
            train_wall_s=float(hosts_wall_s.max()),
            exchange_wall_s=max(0.0, self.wall.phases["exchange"] - self._waited_s(hosts_wall_s)),
            evaluate_wall_s=float(counts[3 : 3 + self.ranks.size].max() / 1e9),
            idle_fraction=float(1 - hosts_wall_s.mean() / hosts_wall_s.max()) if hosts_wall_s.max() else 0.0,
            record_wall_s=self.wall.phases.get("record", 0.0),
            cohort=CohortRound(
                site=cohort,
                num_samples=visits,
                power_fraction=self.world.power_fraction(state.clock_s)[cohort],
                seen_power_fraction=self._view.power_fraction[cohort],
                compute_s=timing.compute_s,
                comm_s=timing.comm_s,
                train_loss=losses,
                train_wall_s=wall_s,
                status=status,
            ),
            candidates=self._candidates,
        )
        self.signals = counts[3 + self.ranks.size :]
        return stopped(State(plan.round, clock_s, state.history.appended(row)), self.experiment.stop)

    def rank_phases(self, history: History) -> list[str]:
        """One line a rank: its wall seconds by phase over the rounds since this process started.

        The exchange and its bookkeeping is everyone's; what no phase accounts for is waiting for others.
        """
        rows = history.rows[len(history) - self.num_rounds :]
        total_s = sum(row.wall_s for row in rows)
        exchange_s, record_s = (
            sum(getattr(row, f"{p}_wall_s") for row in rows) for p in ("exchange", "record")
        )
        lines = []
        for rank, (train_s, evaluate_s) in enumerate(self.rank_wall_s.T):
            phases = {"train": train_s, "exchange": exchange_s, "evaluate": evaluate_s}
            phases["record"] = record_s if rank == 0 else 0.0
            phases["idle"] = max(0.0, total_s - sum(phases.values()))
            lines.append(f"rank {rank}: " + ", ".join(f"{name} {s:.2f} s" for name, s in phases.items()))
        return lines

    def _waited_s(self, hosts_wall_s: np.ndarray) -> float:
        """How much of rank 0's time in the exchange was only waiting for the slowest host to finish training."""
        return float(hosts_wall_s.max()) if self.ranks.hosts.start > 0 else 0.0


def stopped(state: State, stop: Stop) -> State:
    """The state with the reason to end after it, if any rule gives one."""
    row = state.history.last
    if row is None:
        return state
    reason = ""
    if stop.target_accuracy is not None and row.accuracy >= stop.target_accuracy:
        reason = f"target accuracy {stop.target_accuracy:g} reached"
    elif row.round >= stop.max_rounds:
        reason = f"max_rounds = {stop.max_rounds}"
    elif stop.max_clock_s is not None and row.clock_s >= stop.max_clock_s:
        reason = f"max_clock_s = {stop.max_clock_s:g}"
    elif stop.max_wall_s is not None and sum(r.wall_s for r in state.history.rows) >= stop.max_wall_s:
        reason = f"max_wall_s = {stop.max_wall_s:g}"
    return replace(state, stop_reason=reason)


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    """NaN of nothing."""
    return float((values * weights).sum() / weights.sum()) if len(values) else math.nan


def _efficiency(history: History, accuracy: float, clock_s: float) -> float:
    """Eq. 5 over the time since the last evaluation; before the first, accuracy counts as 0."""
    before = history.evaluated()
    start = (before[-1].accuracy, before[-1].clock_s) if before else (0.0, 0.0)
    return (accuracy - start[0]) / (clock_s - start[1])
