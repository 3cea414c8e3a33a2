"""Prints the progress of a run at rank 0: one line per round, and on a terminal a progress bar. Under a launcher there
is no bar."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from rich import progress as bars
from rich.console import Console

import hpctrip
from hpctrip.base.io import BestEffortStream
from hpctrip.base.process import log
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.record.schema import TABLES, time_to_accuracy_s
from hpctrip.record.show import deadline, drawn, energy, round_facts, wall_time
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import Input
from hpctrip.runner.job_status import StatusFile
from hpctrip.sim import plausible
from hpctrip.sim.rounds import History, RoundRow
from hpctrip.sim.step import State

PACE_S = 3600.0
"""The pace of the rounds within this time predicts how long the others take."""


class Progress:
    """Context that prints a run's settings, every round, and at the end its stop reason and results file. The run goes
    on if the output breaks (a closed terminal, a broken pipe)."""

    def __init__(
        self, aggregator: Aggregator, path: str, history: History, status: StatusFile, quiet: bool = False
    ):
        """`history` are the rounds before this start; `status` keeps rounds and warnings; `quiet`: nothing is
        printed."""
        self.aggregator, self.path, self.status = aggregator, path, status
        self.stop = aggregator.experiment.stop
        stream = BestEffortStream(sys.stdout)
        # Under a launcher print lines only: Open MPI gives a rank a pseudo-terminal even if its own output is a file.
        # Always set explicitly: FORCE_COLOR would put control characters into a log.
        terminal = stream.isatty() and aggregator.ranks.size == 1
        self.console = Console(
            file=stream, highlight=False, soft_wrap=True, force_terminal=terminal, quiet=quiet
        )
        self.bar = bars.Progress(
            bars.BarColumn(),
            bars.TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            bars.TimeElapsedColumn(),
            bars.TextColumn("at most"),
            bars.TimeRemainingColumn(),
            bars.TextColumn("left"),
            console=self.console,
            refresh_per_second=1,
            speed_estimate_period=PACE_S,
            disable=quiet or not self.console.is_interactive,
        )
        self.bar.add_task("", total=self.stop.max_rounds, completed=len(history))

    def __enter__(self) -> Progress:
        aggregator, e = self.aggregator, self.aggregator.experiment
        host, world, ranks = aggregator.host, aggregator.world, aggregator.ranks
        policy, power = e.policy.kind, type(e.power).kind
        made_up = " (synthetic)" if world.supply.synthetic else ""
        target = (
            "no target" if e.stop.target_accuracy is None else f"target accuracy {e.stop.target_accuracy:g}"
        )
        for line in (
            f"hpctrip {hpctrip.__version__}: {e.name}, seed {e.seed}, {target}, at most {e.stop.max_rounds} rounds",
            f"policy {policy} over {len(world)} sites, power {power}{made_up}, "
            f"updates of {aggregator.updates} on the simulated WAN",
            f"data: {host.task.source}",
            f"{ranks.size} rank(s), {len(ranks.hosts)} host(s), transport {ranks.name}, {host.engine_choice}",
            *(f"warning: {warning}" for warning in plausible.warnings(world, e.stop.max_clock_s)),
        ):
            self.say(line)
        self.bar.start()
        return self

    def round(self, state: State) -> None:
        """Report one more round."""
        row = state.history.last
        assert row is not None
        self._print(round_line(row, self.aggregator.world.site_columns.get("name", ())))
        self.bar.update(self.bar.task_ids[0], completed=state.round)
        self.status.round(row)

    def say(self, line: str) -> None:
        """Print one more line."""
        self._print(line)
        self.status.say(line)

    def _print(self, line: str) -> None:
        log(line)
        self.console.print(printable(line, 1000), markup=False)

    def finished(self, state: State, digest: str, checkpoint_wall_s: float) -> None:
        """Print the closing lines, below the bar."""
        self.bar.stop()
        history, target = state.history, self.stop.target_accuracy
        facts = round_facts({name: [getattr(row, name) for row in history.rows] for name in TABLES["rounds"]})
        reached_s = time_to_accuracy_s(history.curve(), self.stop.target)
        facts |= {
            "status": "finished",
            "currency": self.aggregator.experiment.accounts.currency,
            "synthetic_signals": self.aggregator.world.synthetic_signals,
            "time_to_accuracy_s": reached_s,
            "deadline_s": self.aggregator.experiment.deadline_s,
        }
        self.say(
            f"stopped: {state.stop_reason}, after {len(history)} rounds, {state.clock_s / HOUR_S:.3f} h simulated"
        )
        if target is not None:
            self._print(
                f"time to accuracy {target:g}: {reached_s / HOUR_S:.3f} h"
                if reached_s == reached_s
                else f"time to accuracy {target:g}: not reached (best {facts['best_accuracy']:.4f})"
            )
        written = (
            f"checkpoints {checkpoint_wall_s:.2f} s ({checkpoint_wall_s / (facts['wall_s'] or math.inf):.2%})"
        )
        lines = {
            **deadline(facts),
            **energy(facts),
            "wall time": f"{wall_time(facts)}; {written}",
            **drawn(facts),
        }
        for name, text in lines.items():
            self.say(f"{name}: {text}")
        for line in self.aggregator.rank_phases(state.history):
            self.say(line)
        self._print(f"model digest {digest}")
        self.say(f"results: {self.path}")

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def round_line(row: RoundRow, names: Sequence[str] = ()) -> str:
    """The line that reports a round, with the name of its straggler where sites have `names` [N]."""
    at = f" at {printable(names[row.straggler], 24)}" if len(names) and names[row.straggler] else ""
    accuracy = f"{row.accuracy:.4f}" if row.eval_seen else "      "
    arrived = "" if row.num_arrived == row.num_sites else f" ({row.num_arrived} arrived)"
    return (
        f"round {row.round:4d}  k {row.num_sites:3d}{arrived}  accuracy {accuracy}"
        f"  clock {row.clock_s / HOUR_S:7.3f} h"
        f"  (+{row.makespan_s:.1f} s{at}: compute {row.straggler_compute_s:.1f} + wan {row.straggler_comm_s:.1f})"
        f"  wall {row.wall_s:.2f} s"
    )


def model_line(run_input: Input, num_params: int) -> str:
    """The model and the plug-ins of a run, in one line."""
    workload = run_input.experiment.workload
    plugins = ", ".join(plugin.path for plugin in run_input.extensions.plugins)
    name = getattr(workload, "model", None) or workload.kind
    return f"model: {name}, {num_params:,} parameters{f'; plug-ins: {plugins}' if plugins else ''}"
