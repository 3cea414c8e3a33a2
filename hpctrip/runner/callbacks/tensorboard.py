"""Event files for TensorBoard (the extra `[tensorboard]`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from hpctrip.base.errors import require
from hpctrip.base.io import PathName
from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.sim.rounds import RoundRow

BY_CLOCK = "learning/accuracy_by_simulated_second"
_LEARNING = ("accuracy", "eval_loss", "eval_perplexity", "train_loss", "update_norm")
_FLUSH_S = 10


@CALLBACKS.add
class TensorBoard(Callback):
    """Writes the numbers of every round for TensorBoard: `tensorboard --logdir results`.

    The step is the round; in `learning/accuracy_by_simulated_second` it is the simulated time, for comparing runs.
    """

    kind: ClassVar[str] = "tensorboard"
    outputs_of_one_run: ClassVar[tuple[str, ...]] = ("folder",)
    folder: PathName | None = Field(None, min_length=1)
    """Folder of the event files of this run only. Absent: FILE.h5.tensorboard beside the results FILE.h5."""

    start_limit_s: ClassVar[float] = 60.0  # importing TensorBoard from a shared file system
    _folder: Path
    _before: tuple[RoundRow, ...]
    """The rounds before this start."""
    _writer: Any = None
    """None until there is a round to write: TensorBoard then drops the points of earlier starts, and of another run."""

    def check(self) -> None:
        """The package."""
        require('callbacks: kind = "tensorboard"', "tensorboard", "tensorboard")

    def start(self, run: RunFacts) -> None:
        """Take the rounds so far, which are written before the next one."""
        import torch.utils.tensorboard  # noqa: F401  takes longer than a round may

        self._folder = Path(self.folder) if self.folder else Path(f"{run.path}.tensorboard")
        self._before, self._writer = run.rounds, None

    def round(self, row: RoundRow) -> None:
        """Write a point of every curve; a number that was not evaluated in this round has none."""
        if self._writer is None:
            self._begin()
        self._add(row)

    def end(self, status: str) -> None:
        """Flush and close the file."""
        if self._writer is None and self._before:
            self._begin()
        if self._writer is not None:
            self._writer.close()

    def _begin(self) -> None:
        """Write the rounds so far. TensorBoard drops the points of earlier starts (purge_step)."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder), purge_step=0, flush_secs=_FLUSH_S)
        for row in self._before:
            self._add(row)

    def _add(self, row: RoundRow) -> None:
        for name, value in scalars(row).items():
            if value == value:
                self._writer.add_scalar(f"{_group(name)}/{name}", value, row.round)
        if row.eval_seen:
            self._writer.add_scalar(BY_CLOCK, row.accuracy, round(row.clock_s))


def _group(name: str) -> str:
    """The section in which TensorBoard shows this number."""
    if name in _LEARNING:
        return "learning"
    return "wall" if "wall_" in name or name == "idle_fraction" else "round"
