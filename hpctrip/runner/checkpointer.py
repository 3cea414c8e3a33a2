"""Writes checkpoints when they are due."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.config.sources import PLUGINS, read_sources
from hpctrip.record.checkpoint import Checkpoint, Generations
from hpctrip.sim.step import State


class Checkpointing(Component):
    """Intervals of the checkpoints beside the results file; nothing here changes a result."""

    enabled: bool = True
    """Write checkpoints at all."""
    every_s: Seconds = Field(60.0, ge=0)
    """Wall time between two checkpoints."""
    max_fraction: float = Field(0.005, gt=0, le=1)
    """Upper bound on the fraction of the wall time that writing takes; where it is reached, every_s is exceeded."""
    every_rounds: int | None = Field(None, ge=1)
    """Also write one every this number of rounds, whatever it costs."""


class Checkpointer:
    """Writes checkpoints when they are due, at intervals that depend on the cost of the last one."""

    def __init__(
        self,
        rules: Checkpointing,
        files: Generations,
        input_toml: str,
        metadata: Mapping[str, Any],
        saved_round: int,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """`saved_round` is the round of the checkpoint on disk, 0 for none; `clock` is the wall clock in seconds."""
        self._rules, self._files, self._clock = rules, files, clock
        self._input_toml, self._metadata = input_toml, metadata
        self._saved, self._end, self.cost_s, self.spent_s = saved_round, clock(), 0.0, 0.0

    @property
    def resume_hint(self) -> str:
        """The command that resumes an interrupted run; it names the run's plug-ins again."""
        if not self._rules.enabled:
            return "nothing to resume from (checkpoint.enabled = false)"
        results = str(self._files.results)
        sources = read_sources(self._metadata.get("sources", []), results)
        plugins = [word for source in sources if source.key == PLUGINS for word in ("--plugin", source.path)]
        return f"resume with: {shlex.join(['python', '-m', 'hpctrip', 'resume', results, *plugins])}"

    def due(self, state: State, over: bool) -> bool:
        """Whether a checkpoint of `state` is due. At the end of the run (`over`) one always is."""
        rules, rounds = self._rules, state.round - self._saved
        if not rules.enabled or not state.round or (rounds == 0 and not (over and state.stop_reason)):
            return False
        waited_s = self._clock() - self._end
        paced = waited_s >= max(rules.every_s, self.cost_s / rules.max_fraction)
        return over or paced or (rules.every_rounds is not None and rounds >= rules.every_rounds)

    def save(
        self, state: State, params: np.ndarray, slots: np.ndarray, site_states: Mapping[int, np.ndarray]
    ) -> None:
        """Write a checkpoint. Raises HpctripError where it cannot be written; the previous one is then intact."""
        start = self._clock()
        self._files.write(
            Checkpoint(
                round=state.round,
                clock_s=state.clock_s,
                stop_reason=state.stop_reason,
                history=state.history,
                params=params,
                slots=slots,
                site_states=site_states,
                input_toml=self._input_toml,
                metadata=self._metadata,
            )
        )
        self._saved, self._end = state.round, self._clock()
        self.cost_s = self._end - start
        self.spent_s += self.cost_s
