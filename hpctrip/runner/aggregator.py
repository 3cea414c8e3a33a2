"""Rank 0's part of a round: turns a simulation's draft into work for hosts, and their counters into its outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from hpctrip.base.errors import DivergedError
from hpctrip.base.text import counted, size_text
from hpctrip.config.component import config_key
from hpctrip.device.counters import MICRO
from hpctrip.device.meter import PHASES
from hpctrip.learn.aggregate import LARGEST_BUFFER, LARGEST_UPDATE
from hpctrip.learn.counters import EVALUATION, TRAINING, Tally
from hpctrip.learn.params import buffers, entries, norm
from hpctrip.ranks.placement import Assignment, cut, cut_at_fixed_borders, place
from hpctrip.runner.host import Host
from hpctrip.sim.outcome import SITE_REPORTS, Outcome
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.step import Draft, State


class Aggregator:
    """Begins and finishes rounds. Shapes: k sites of the cohort, P parameters, B entries of buffers.

    What it counts over rounds is about this process and its machines; the state of the run is passed through it.
    """

    def __init__(self, host: Host, num_machines: int = 0):
        """`host` holds the objects of the experiment that every rank has; `num_machines` is the number of machines of
        the run, 0 where none is metered."""
        e = host.experiment
        self.host, self.experiment, self.ranks, self.num_machines = host, e, host.ranks, num_machines
        sizes = host.num_params, host.num_samples, host.num_buffers
        self.simulation = e.simulation(*sizes, _label_counts(host))
        self.world = self.simulation.world
        self.num_rounds = 0
        """Rounds since this process started; a resumed run has more."""
        self.rank_wall_s = np.zeros((len(PHASES), self.ranks.size))
        """Wall seconds of every rank in these rounds, [phases, ranks]. All ranks exchange together, only rank 0
        records."""
        self.rank_wall_j = np.full((len(PHASES), self.ranks.size), np.nan)
        """Joules in these rounds of the machine whose counters the rank reads, [phases, ranks]; NaN: it reads none."""
        self.received_signals = np.zeros(self.ranks.size, dtype=np.int64)
        """Number of the signal that every rank had received at the end of the last round, [ranks]; 0: none."""

    @property
    def updates(self) -> str:
        """Description of the size of an update on the simulated WAN."""
        rule, size = self.experiment.compression, size_text(self.world.update_bytes)
        fraction = rule.sent_fraction(self.host.num_params, self.host.num_buffers)
        whole, num = size_text(self.world.model_bytes), self.experiment.overlap.fragments
        part = f", one of {num} fragments of the model" if num > 1 else ""
        return (size if fraction == 1 else f"{size} ({rule.kind}: {fraction:.2%} of {whole})") + part

    def begin(self, state: State) -> tuple[Draft, Assignment]:
        """Begin the round after `state`: its draft, and the work of the hosts in it."""
        self.host.wall.start()
        draft = self.simulation.begin(state)
        return draft, self.assign(draft)

    def assign(self, draft: Draft) -> Assignment:
        """The assignment of a round: blocks of the sites that are trained, and their hosts."""
        host, times, trained = self.host, draft.times, draft.times.trained
        sites, size = draft.cohort[trained], host.sites_per_block(len(trained))
        if host.fixed_hosts is not None:
            blocks = cut_at_fixed_borders(sites, size)
            hosts = host.fixed_hosts[[sites[block[0]] for block in blocks]]
        else:
            blocks = cut(sites, size)
            visits = host.num_visits[sites]
            hosts = place([visits[block].sum() for block in blocks], len(self.ranks.hosts))
        blocks = [trained[block] for block in blocks]
        before = draft.before.history if host.work.resumes_passes else History()
        visited = before.total_by_site("num_samples", host.num_sites).astype(np.int64)
        ended = np.flatnonzero((times.age > 0) & (times.flights.status != Status.UNDER_WAY))
        if host.work.resumes_passes:  # a site may start again in the round in which its last update arrives
            back = ended[draft.weights[ended] > 0]
            np.add.at(
                visited, draft.cohort[back], (times.flights.local_work * host.num_visits[draft.cohort])[back]
            )
        return Assignment(
            round=draft.round,
            cohort=draft.cohort,
            weights=draft.weights,
            discounts=draft.discounts,
            blocks=blocks,
            block_hosts=hosts,
            visited=visited[draft.cohort],
            evaluate=self.experiment.evaluate.due(draft.round, self.experiment.stop.max_rounds),
            local_work=times.flights.local_work,
            ended=ended.tolist(),
            first_step=host.work.local_steps * draft.before.history.total_work
            if host.work.is_scheduled
            else 0,
        )

    def finish(
        self, draft: Draft, before: torch.Tensor, after: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """Finish a round, which led from the global model `before` [P + B] to `after`, and return the state after it.
        `tail` and `counts` are the counters TRAINING and EVALUATION, summed over all ranks. Raises DivergedError where
        the round has no result."""
        k = len(draft.cohort)
        trained = Tally(TRAINING, k, self.ranks.size, tail)
        evaluated = Tally(EVALUATION, k, self.ranks.size, counts)
        self._refuse_diverged(draft, trained.integers["diverged"])
        p = self.host.num_params
        outcome = self._outcome(float(norm(after[:p], before[:p])), trained, evaluated)
        if not math.isfinite(outcome.update_norm):
            server = self.experiment.server
            raise DivergedError(
                f"{config_key('server', server)}: the model is no longer finite after round {draft.round}; "
                f"lower server.lr (now {server.lr:g})"
            )
        state, row = self.simulation.finish(draft, outcome)
        seconds = {
            "record": row.record_wall_s * (np.arange(self.ranks.size) == 0),
            "train": trained.values("rank_train_wall_s"),
            "exchange": np.full(self.ranks.size, row.exchange_wall_s),
            "evaluate": evaluated.values("rank_evaluate_wall_s"),
        }
        self.rank_wall_s = self.rank_wall_s + [seconds[phase] for phase in PHASES]
        joules = np.array([evaluated.values(f"{phase}_wall_j") for phase in PHASES])
        is_metered = evaluated.integers["metered"] > 0
        self.rank_wall_j = np.where(is_metered, np.nan_to_num(self.rank_wall_j) + joules, self.rank_wall_j)
        self.received_signals = evaluated.integers["signal"]
        self.num_rounds += 1
        return state

    def _outcome(self, update_norm: float, trained: Tally, evaluated: Tally) -> Outcome:
        seen = int(evaluated.integers["seen"][0])
        return Outcome(
            diverged=trained.integers["diverged"] > 0,
            **{name: trained.values(column) for name, column in SITE_REPORTS.items()},
            train_wall_s=trained.values("train_wall_s"),
            mean_update_norm=evaluated.agreed("mean_update_norm"),
            update_cosine=evaluated.agreed("update_cosine") or math.nan,
            update_norm=update_norm,
            eval_correct=int(evaluated.integers["correct"][0]),
            eval_seen=seen,
            eval_loss=float(evaluated.values("loss_sum")[0]) / seen if seen else math.nan,
            measured=self._measured(trained, evaluated),
        )

    def _measured(self, trained: Tally, evaluated: Tally) -> dict[str, float]:
        """Wall times and joules of the round (`MEASURED`). The exchange excludes rank 0's wait for the slowest host to
        train."""
        hosts, phases = self.ranks.hosts, self.host.wall.phases
        train_s = trained.values("rank_train_wall_s")[hosts.start :]
        waited_s = float(train_s.max()) if hosts.start > 0 else 0.0
        joules: dict[str, float] = {}
        if 0 < self.num_machines == evaluated.integers["metered"].sum():  # else unknown
            names = [f"{phase}_wall_j" for phase in PHASES]
            joules = {name: float(evaluated.integers[name].sum() / MICRO) for name in names}
            joules["wall_j"] = sum(joules.values())
        return dict(
            wall_s=self.host.wall.end(),
            train_wall_s=float(train_s.max()),
            exchange_wall_s=max(0.0, phases["exchange"] - waited_s),
            evaluate_wall_s=float(evaluated.values("rank_evaluate_wall_s").max()),
            record_wall_s=phases.get("record", 0.0),
            idle_fraction=float(1 - train_s.mean() / train_s.max()) if train_s.max() else 0.0,
            **joules,
        )

    def _refuse_diverged(self, draft: Draft, culprits: np.ndarray) -> None:
        """Raise DivergedError where updates diverged, unless server.on_diverged allows to leave them out and others
        remain. `culprits` [k] tell what diverged (`Host._culprit`), 0: nothing."""
        if not culprits.any():
            return
        if self.experiment.server.on_diverged == "stop":
            first, *others = draft.cohort[culprits > 0]
            more = f" (and {len(others)} more)" if others else ""
            what = ["the training loss", *entries(self.host.model)][culprits[culprits > 0][0] - 1]
            is_buffer = what in buffers(self.host.model)
            bound = LARGEST_BUFFER if is_buffer else LARGEST_UPDATE
            raise DivergedError(
                f"{self.world.site_name(first)}{more}, round {draft.round}: {'the buffer ' * is_buffer}{what} is not "
                f"finite or changes by more than {bound:g}: training diverged; lower train.lr"
                f"{', or scale the samples' * is_buffer}"
            )
        if culprits[draft.times.arriving].all():
            raise DivergedError(f"round {draft.round}: the update of every site diverged; lower train.lr")

    def rank_phases(self, history: History) -> list[str]:
        """One line per rank: its wall seconds by phase over the rounds since this process started. Idle time is the
        rest."""
        total_s = sum(row.wall_s for row in history.rows[len(history) - self.num_rounds :])
        lines = []
        for rank, seconds in enumerate(self.rank_wall_s.T):
            spent_s = dict(zip(PHASES, seconds, strict=True))
            phases = {name: spent_s[name] for name in ("train", "exchange", "evaluate", "record")}
            phases["idle"] = max(0.0, total_s - seconds.sum())
            lines.append(f"rank {rank}: " + ", ".join(f"{name} {s:.2f} s" for name, s in phases.items()))
        return lines


def idle_hosts(host: Host, rounds: Sequence[Assignment], when: str) -> str:
    """A line with the number of hosts that train no site and a hint, for the round of `rounds` with the fewest idle
    hosts. Empty where all hosts are busy, or no round trains any site. `when` names the rounds in the line."""
    num_hosts = len(host.ranks.hosts)
    at_work = [len(np.unique(a.block_hosts)) for a in rounds]
    busy, num_sites, fullest = max(
        (hosts, sum(map(len, a.blocks)), i) for i, (hosts, a) in enumerate(zip(at_work, rounds, strict=True))
    )
    if busy in (0, num_hosts):
        return ""
    blocks = rounds[fullest].blocks
    size = max(map(len, blocks))
    return (
        f"{num_hosts} hosts, but at most {counted(len(blocks), 'block')} {when} ({counted(num_sites, 'site')}, up to "
        f"{size} in one): {num_hosts - busy} hosts idle; {_idle_hint(host, size)}"
    )


def _idle_hint(host: Host, size: int) -> str:
    """Hint against idle hosts; blocks of a single site cannot be made smaller."""
    num_hosts, engine = len(host.ranks.hosts), host.experiment.engine
    if size == 1:
        return "use fewer ranks, unless cohorts grow"
    if engine.sites_per_block == "auto" and engine.lanes != num_hosts:
        return f"use fewer ranks, or set engine.lanes = {num_hosts}"
    return "use fewer ranks, or a smaller engine.sites_per_block"


def _label_counts(host: Host) -> np.ndarray | None:
    """Labels of each site by class, [N, classes]; None where the policy does not see them."""
    sees_labels, train = host.experiment.policy.sees_labels, host.task.train
    return host.shards.label_counts(train.labels, host.task.num_classes) if sees_labels else None
