"""What rank 0 tells the person or the log: a bar on a terminal, one line a round elsewhere and under a launcher."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

import hpctrip
from hpctrip.app.aggregator import Aggregator
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.record.schema import time_to_accuracy_s
from hpctrip.sim.state import State


class Progress:
    """Announces the run, follows it, and says at the end which rule stopped it and where the file is."""

    def __init__(
        self,
        aggregator: Aggregator,
        path: str,
        quiet: bool = False,
        watch: Callable[[State], None] | None = None,
    ):
        """`quiet`: says nothing; `watch` is called after every round."""
        self.aggregator, self.path, self.watch = aggregator, path, watch
        self.stop = aggregator.experiment.stop
        # Under a launcher always lines: Open MPI gives a rank a pseudo-terminal even where its own output is a file.
        force_terminal = False if aggregator.ranks.size > 1 else None
        self.console = Console(highlight=False, soft_wrap=True, force_terminal=force_terminal, quiet=quiet)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("round", total=self.stop.max_rounds, line="")

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
        ):
            self.say(line)
        self.bar.start()
        return self

    def round(self, state: State) -> None:
        """One more round is done."""
        row = state.history.last
        assert row is not None
        accuracy = f"{row.accuracy:.4f}" if row.eval_seen else "      "
        arrived = "" if row.num_arrived == row.num_sites else f" ({row.num_arrived} arrived)"
        if self.bar.disable:
            self.console.print(
                f"round {row.round:4d}  k {row.num_sites:3d}{arrived}  accuracy {accuracy}"
                f"  clock {row.clock_s / HOUR_S:7.3f} h"
                f"  (+{row.makespan_s:.1f} s: compute {row.straggler_compute_s:.1f} + wan {row.straggler_comm_s:.1f})"
                f"  wall {row.wall_s:.2f} s"
            )
        else:
            line = f"k {row.num_sites}{arrived}  accuracy {accuracy}  clock {row.clock_s / HOUR_S:.3f} h"
            self.bar.update(self.task, completed=row.round, line=line)
        if self.watch:
            self.watch(state)

    def say(self, line: str) -> None:
        """One more line."""
        self.console.print(printable(line, 1000), markup=False)

    def finished(self, state: State, digest: str, checkpoint_wall_s: float) -> None:
        """The closing lines."""
        rows, target = state.history.rows, self.stop.target_accuracy
        self.console.print(
            f"stopped: {state.stop_reason}, after {len(rows)} rounds, {state.clock_s / HOUR_S:.3f} h simulated"
        )
        if target is not None:
            reached_s = time_to_accuracy_s(state.history.curve(), target)
            best = max((row.accuracy for row in state.history.evaluated()), default=float("nan"))
            self.console.print(
                f"time to accuracy {target:g}: {reached_s / HOUR_S:.3f} h"
                if reached_s == reached_s
                else f"time to accuracy {target:g}: not reached (best {best:.4f})"
            )
        total = sum(row.wall_s for row in rows)
        phases = ", ".join(
            f"{name} {sum(getattr(row, f'{name}_wall_s') for row in rows):.1f}"
            for name in ("train", "exchange", "evaluate", "record")
        )
        idle = sum(row.idle_fraction * row.train_wall_s for row in rows) / max(
            sum(r.train_wall_s for r in rows), 1e-9
        )
        self.console.print(
            f"wall time {total:.1f} s ({phases}); hosts idle {idle:.0%} of the training phase; "
            f"checkpoints {checkpoint_wall_s:.2f} s ({checkpoint_wall_s / max(total, 1e-9):.2%})"
        )
        for line in self.aggregator.rank_phases(state.history):
            self.say(line)
        self.console.print(f"model digest {digest}")
        self.say(f"results: {self.path}")

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
