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

    The step is the round; in `learning/accuracy_by_simulated_second` it is the simulated time, on which runs are
    compared.
    """

    kind: ClassVar[str] = "tensorboard"
    folder: PathName | None = Field(None, min_length=1)
    """Folder of the event files, for this run alone. Absent: FILE.h5.tensorboard beside the results FILE.h5."""

    start_limit_s: ClassVar[float] = 60.0  # importing TensorBoard from a shared file system
    _writer: Any

    def check(self) -> None:
        """The package."""
        require('callbacks: kind = "tensorboard"', "tensorboard", "tensorboard")

    def start(self, run: RunFacts) -> None:
        """Write the rounds so far. TensorBoard drops the points of earlier starts (purge_step)."""
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(self.folder) if self.folder else Path(f"{run.path}.tensorboard")
        self._writer = SummaryWriter(str(folder), purge_step=0, flush_secs=_FLUSH_S)
        for row in run.rounds:
            self.round(row)

    def round(self, row: RoundRow) -> None:
        """Write a point of every curve; a number that was not evaluated in this round has none."""
        for name, value in scalars(row).items():
            if value == value:
                self._writer.add_scalar(f"{_group(name)}/{name}", value, row.round)
        if row.eval_seen:
            self._writer.add_scalar(BY_CLOCK, row.accuracy, round(row.clock_s))

    def end(self, status: str) -> None:
        """Flush and close the file."""
        self._writer.close()


def _group(name: str) -> str:
    """The section in which TensorBoard shows this number."""
    if name in _LEARNING:
        return "learning"
    return "wall" if "wall_" in name or name == "idle_fraction" else "round"
