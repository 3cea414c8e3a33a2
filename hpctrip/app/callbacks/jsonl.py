"""One line of JSON a round, for tools of one's own: `tail -f FILE.h5.jsonl | jq .accuracy`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import ClassVar, TextIO

from pydantic import Field

from hpctrip.app.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.base.files import PathName
from hpctrip.base.output import replace_file
from hpctrip.sim.rounds import RoundRow


@CALLBACKS.add
class Jsonl(Callback):
    """Writes the numbers of every round as one line of JSON, the columns of /rounds in the results file."""

    kind: ClassVar[str] = "jsonl"
    path: PathName | None = Field(None, min_length=1)
    """The file, which a new run replaces and one that goes on continues; absent: FILE.h5.jsonl beside the results
    FILE.h5."""

    _file: TextIO

    def start(self, run: RunFacts) -> None:
        """The lines of the rounds so far, and no others."""
        path = Path(self.path).expanduser() if self.path else Path(f"{run.path}.jsonl")
        replace_file(path, "".join(map(_line, run.rounds)).encode())
        self._file = path.open("a", encoding="utf-8")

    def round(self, row: RoundRow) -> None:
        """One more line, which others can read at once."""
        self._file.write(_line(row))
        self._file.flush()

    def end(self, status: str) -> None:
        """Close the file."""
        self._file.close()


def _line(row: RoundRow) -> str:
    """JSON knows no NaN and no infinity: they are null."""
    numbers = {name: value if math.isfinite(value) else None for name, value in scalars(row).items()}
    return json.dumps(numbers) + "\n"
