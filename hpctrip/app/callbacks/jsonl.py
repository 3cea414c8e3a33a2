"""One line of JSON a round, for tools of one's own: `tail -f FILE.h5.jsonl | jq .accuracy`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import BinaryIO, ClassVar

from pydantic import Field

from hpctrip.app.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName, append_to, refuse_other, replace_file
from hpctrip.sim.rounds import RoundRow

WAY_OUT = "remove it, or name another by callbacks.jsonl.path"


@CALLBACKS.add
class Jsonl(Callback):
    """Writes the numbers of every round as one line of JSON, the columns of /rounds in the results file."""

    kind: ClassVar[str] = "jsonl"
    path: PathName | None = Field(None, min_length=1)
    """The file, which a new run replaces and one that goes on continues; no link and no file of anything else.
    Absent: FILE.h5.jsonl beside the results FILE.h5."""

    _file: BinaryIO

    def check_outputs(self, results: Path) -> None:
        """Only lines of rounds are replaced."""
        path = self._path(results)
        if os.path.realpath(path) == os.path.realpath(results):
            raise InputError(str(path), "is the results file of the run", WAY_OUT)
        refuse_other(path, _has_rounds, "no file of a run's rounds as JSON", WAY_OUT)

    def start(self, run: RunFacts) -> None:
        """The lines of the rounds so far, and no others."""
        self.check_outputs(run.path)  # again: something may have come meanwhile
        path = self._path(run.path)
        replace_file(path, "".join(map(_line, run.rounds)).encode())
        self._file = append_to(path)

    def round(self, row: RoundRow) -> None:
        """One more line, which others can read at once."""
        self._file.write(_line(row).encode())

    def end(self, status: str) -> None:
        """Close the file."""
        self._file.close()

    def _path(self, results: Path) -> Path:
        return Path(self.path).expanduser() if self.path else Path(f"{results}.jsonl")


def _has_rounds(content: bytes) -> bool:
    """Is this what the callback writes? It is nothing before the first round."""
    if not content:
        return True
    try:
        first = json.loads(content.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "round" in first


def _line(row: RoundRow) -> str:
    """JSON knows no NaN and no infinity: they are null."""
    numbers = {name: value if math.isfinite(value) else None for name, value in scalars(row).items()}
    return json.dumps(numbers) + "\n"
