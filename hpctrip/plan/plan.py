"""The plan of a run in numbers: its first rounds, and the wall time, memory, traffic and disk space that follow.

`plan.report` renders it as text. Symbols: P parameters, T counters in the tail of the sum.
"""

from __future__ import annotations

import math
import pickle
import resource
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.learn.counters import EVALUATION, TRAINING, vector_size
from hpctrip.plan.speed import Speed
from hpctrip.ranks.placement import Assignment
from hpctrip.record import checkpoint, schema
from hpctrip.runner.aggregator import Aggregator
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.quantities import QUANTITIES
from hpctrip.sim.rounds import RoundRow, Status
from hpctrip.sim.step import State

HOST_PARTS = ("model", "sum", "engine", "data", "kept")
"""Parts of `Plan.memory` that every host needs."""


@dataclass(frozen=True)
class PlannedRound:
    """One planned round."""

    assignment: Assignment
    row: RoundRow
    """The row that the run would record, without the results of training."""
    loads: pd.DataFrame
    """num_blocks, num_sites and num_samples (of training) of every host."""


def first_rounds(aggregator: Aggregator, num_rounds: int) -> list[PlannedRound]:
    """Plan up to `num_rounds` rounds, fewer if a stop rule ends the run. No accuracy is known."""
    num_hosts, num_visits = len(aggregator.ranks.hosts), aggregator.host.num_visits
    state, rounds = State(), []
    while len(rounds) < num_rounds and not state.stop_reason:
        draft, assignment = aggregator.begin(state)
        blocks, hosts = assignment.blocks, assignment.block_hosts
        visits = assignment.local_work * num_visits[draft.cohort]
        # no round has been measured yet, so its work is that of the model, on a device of the usual size
        outcome = Outcome.assumed(draft.work_s[draft.cohort] * draft.world.hardware.full_speed[draft.cohort])
        state, row = aggregator.simulation.finish(draft, outcome)
        of_blocks = {
            "num_blocks": np.ones(len(blocks)),
            "num_sites": [len(block) for block in blocks],
            "num_samples": [visits[block].sum() for block in blocks],
        }
        loads = {name: np.bincount(hosts, load, num_hosts) for name, load in of_blocks.items()}
        rounds.append(PlannedRound(assignment, row, pd.DataFrame(loads).astype(np.int64)))
    return rounds


@dataclass(frozen=True)
class Plan:
    """A planned run: its components, its first rounds, and the costs that follow from them."""

    aggregator: Aggregator
    rounds: list[PlannedRound]
    speed: Speed
    bandwidth_bps: float
    """Bandwidth of a rank's link to the others."""
    host_memory_bytes: float
    """Memory of a host; inf: not known."""

    @cached_property
    def wall_s(self) -> np.ndarray:
        """Wall time of every planned round in seconds, [num_rounds]; NaN if the speed is not known. It is the sum of
        the training time of the busiest host, the exchange of the vectors and the evaluation."""
        host = self.aggregator.host
        batches = math.ceil(len(host.eval_batches) / len(host.ranks.hosts))
        evaluation_s = batches * host.experiment.evaluate.batch_size / self.speed.evaluate_per_s
        return np.array(
            [
                r.loads.num_samples.max() / self.speed.train_per_s
                + self.exchange_s(r.assignment)
                + r.assignment.evaluate * evaluation_s
                for r in self.rounds
            ]
        )

    def total(self, name: str, num_rounds: int) -> float:
        """The sum of a column of `first_rounds` over `num_rounds` rounds; rounds beyond them count as the last one."""
        values = [row[name] for row in self.first_rounds]
        return float(sum(values) + max(0, num_rounds - len(values)) * values[-1])

    @cached_property
    def end(self) -> tuple[int, str]:
        """The number of rounds after which a stop rule ends the run if its target does not, and that rule; rounds
        beyond the planned ones count as the last one."""
        stop, num_planned = self.aggregator.experiment.stop, len(self.rounds)
        limits = [("num_samples", stop.max_samples, f"max_samples = {stop.max_samples}")]
        limits += [("makespan_s", stop.max_clock_s, f"max_clock_s = {stop.max_clock_s or 0:g}")]
        limits += [(budget.quantity.column, budget.amount, str(budget)) for budget in stop.budgets]
        ends = [(stop.max_rounds, f"max_rounds = {stop.max_rounds}")]
        for column, limit, rule in limits:
            spent = [getattr(planned.row, column) for planned in self.rounds]
            if limit is not None and spent[-1] > 0:
                ends.append((num_planned + max(0, math.ceil((limit - sum(spent)) / spent[-1])), rule))
        return min(ends)

    @property
    def end_s(self) -> float:
        """The simulated time at that end."""
        last = self.rounds[-1].row
        return last.clock_s + max(0, self.end[0] - len(self.rounds)) * last.makespan_s

    def rounds_within(self, clock_s: float) -> int:
        """The number of rounds that end by a simulated time; those beyond the planned ones count as the last one."""
        ends_s = [planned.row.clock_s for planned in self.rounds]
        beyond = (clock_s - ends_s[-1]) // self.rounds[-1].row.makespan_s
        return bisect_right(ends_s, clock_s) + max(0, int(beyond))

    def exchange(self, assignment: Assignment) -> dict[str, int]:
        """Bytes that a round sends over the link of a rank: up, the int64 sum of the updates with its counters; down,
        the float32 model; the int64 counters of the evaluation; the message with the assignment."""
        host = self.aggregator.host
        size, num_params = host.ranks.size, len(host.initial_params)
        if size == 1:
            return dict.fromkeys(("up", "down", "counters", "message"), 0)
        return {
            "up": 8 * (num_params + vector_size(TRAINING, len(assignment.cohort), size) + host.num_buffers),
            "down": 4 * num_params,
            "counters": 8 * vector_size(EVALUATION, 0, size),
            "message": len(pickle.dumps((0, assignment))),
        }

    def exchange_s(self, assignment: Assignment) -> float:
        """Time of the two long collectives of a round. A reduction and a broadcast of a long vector each send its bytes
        about twice over a rank's link, whatever the number of ranks (Rabenseifner's and van de Geijn's algorithms)."""
        exchange = self.exchange(assignment)
        return 2 * 8 * (exchange["up"] + exchange["down"]) / self.bandwidth_bps

    @cached_property
    def memory(self) -> dict[str, int]:
        """Peak bytes of the arrays of a rank in the last planned round, {purpose: bytes}.

        model: 4 P each for the local copy, the old and the new global parameters; the server's slots; frozen parameters
        once, as all models of a rank share them.
        sum: the vector that travels.
        data: training set; each GPU has a copy, the CPUs of a node share a memory-mapped one.
        kept: state of the sites between rounds and updates that are under way, each on the host with most of them.
        aggregator: the model, the sum and, while a checkpoint is written, the state and updates of all sites.
        """
        host, num_sites = self.aggregator.host, self.rounds[-1].row.num_sites
        p, t = len(host.initial_params), vector_size(TRAINING, num_sites, host.ranks.size) + host.num_buffers
        frozen = sum(q.numel() * q.element_size() for q in host.model.parameters() if not q.requires_grad)
        model = 12 * p + host.slots.nbytes + frozen
        sites_at = np.zeros(1, dtype=np.int64) if host.fixed_hosts is None else np.bincount(host.fixed_hosts)
        updates_at, update_bytes = self.updates_at, 4 * (p + host.memory.NUM_LOSSES)
        state_bytes = 4 * host.memory.length
        return {
            "model": model,
            "sum": 8 * (p + t),
            "engine": host.engine.memory_bytes(host.sites_per_block(num_sites)),
            "data": host.task.train.nbytes,
            "kept": state_bytes * int(sites_at.max()) + update_bytes * int(updates_at.max()),
            "aggregator": model
            + 8 * (p + t)
            + state_bytes * int(sites_at.sum())
            + update_bytes * int(updates_at.sum()),
        }

    @property
    def updates_at(self) -> np.ndarray:
        """Updates that each host keeps after the last planned round, as they are under way, [hosts]."""
        host_of: dict[int, int] = {}
        for assignment in (planned.assignment for planned in self.rounds):
            for position in assignment.ended:
                host_of.pop(int(assignment.cohort[position]), None)
            for block, host in zip(assignment.blocks, assignment.block_hosts.tolist(), strict=True):
                started = block[assignment.weights[block] == 0]  # those that have not also arrived
                host_of |= dict.fromkeys(assignment.cohort[started].tolist(), host)
        return np.bincount([*host_of.values()], minlength=len(self.aggregator.ranks.hosts))

    @cached_property
    def written_bytes(self) -> dict[str, int]:
        """Bytes of the results file and of each of the two checkpoints after max_rounds rounds like the last one."""
        host, row = self.aggregator.host, self.rounds[-1].row
        num_candidates = len(row.candidates.k) if row.candidates else 0
        num_flights, num_entries = len(row.billed.site), len(host.initial_params)
        rows = self.aggregator.experiment.stop.max_rounds * schema.row_bytes(num_flights, num_candidates)
        num_under_way = int((row.cohort.status == Status.UNDER_WAY).sum())
        update_entries = num_under_way * (num_entries + host.memory.NUM_LOSSES)
        model = num_entries, len(host.slots), host.num_sites * host.memory.length + update_entries
        return {
            "results": rows + schema.empty_bytes(host.num_sites),
            "checkpoint": rows + checkpoint.model_bytes(*model),
        }

    @cached_property
    def process_bytes(self) -> int:
        """Peak resident memory of this process."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    @cached_property
    def first_rounds(self) -> list[dict[str, Any]]:
        """Table of the planned rounds, one dict per round."""
        of_hosts = [r.loads.num_samples for r in self.rounds]
        return [
            {
                "round": r.row.round,
                "num_sites": r.row.num_sites,
                "num_arrived": r.row.num_arrived,
                "num_blocks": len(r.assignment.blocks),
                "makespan_s": r.row.makespan_s,
                "clock_s": r.row.clock_s,
                "busiest_host_samples": int(samples.max()),
                "idle_fraction": 1 - samples.mean() / samples.max() if samples.any() else math.nan,
                "wall_s": seconds,
                **{quantity.column: getattr(r.row, quantity.column) for quantity in QUANTITIES},
            }
            for r, samples, seconds in zip(self.rounds, of_hosts, self.wall_s.tolist(), strict=True)
        ]

    @cached_property
    def placement(self) -> list[dict[str, int]]:
        """Load of the hosts in the last planned round: one dict per distinct load, the largest first."""
        counts = (
            self.rounds[-1].loads.value_counts().sort_index(ascending=False).reset_index(name="num_hosts")
        )
        return counts[["num_hosts", *counts.columns[:-1]]].to_dict("records")
