"""One line of JSON a round, for other tools: `tail -F FILE.h5.jsonl | jq .accuracy`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import BinaryIO, ClassVar

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName, append_to, refuse_other, replace_file
from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.sim.rounds import RoundRow

HINT = "remove it, or name another by callbacks.jsonl.path"
_FIRST = b'{"round":'
"""Beginning of every line."""


@CALLBACKS.add
class Jsonl(Callback):
    """Writes the numbers of every round as one line of JSON, the columns of /rounds in the results file."""

    kind: ClassVar[str] = "jsonl"
    outputs_of_one_run: ClassVar[tuple[str, ...]] = ("path",)
    path: PathName | None = Field(None, min_length=1)
    """The file. A new run replaces it after its first round; a resumed run continues it. Links and other kinds of
    files are refused. Absent: FILE.h5.jsonl beside the results FILE.h5."""

    _results: Path
    _before: tuple[RoundRow, ...]
    """The rounds before this start."""
    _file: BinaryIO | None
    """None until there is a line to write: a run that makes no round leaves the file of an earlier one."""

    def check_outputs(self, results: Path) -> None:
        """Only a file of such lines is replaced."""
        path = self._path(results)
        if os.path.realpath(path) == os.path.realpath(results):
            raise InputError(str(path), "is the results file of the run", HINT)
        what = "not a file of a run's rounds as JSON"  # it is empty before the first round
        refuse_other(path, lambda content: not content or content.startswith(_FIRST), what, HINT)

    def start(self, run: RunFacts) -> None:
        """Take the rounds so far, which are written before the next one."""
        self._results, self._before, self._file = run.path, run.rounds, None

    def round(self, row: RoundRow) -> None:
        """Write one more line, which others can read at once."""
        if self._file is None:
            self._file = self._replaced(*self._before, row)
        else:
            self._file.write(_line(row).encode())

    def end(self, status: str) -> None:
        """Close the file."""
        if self._file is None and self._before:
            self._file = self._replaced(*self._before)
        if self._file is not None:
            self._file.close()

    def _replaced(self, *rounds: RoundRow) -> BinaryIO:
        """The file with the lines of these rounds, open for more."""
        path = self._path(self._results)
        replace_file(path, "".join(map(_line, rounds)).encode())
        return append_to(path)

    def _path(self, results: Path) -> Path:
        return Path(self.path) if self.path else Path(f"{results}.jsonl")


def _line(row: RoundRow) -> str:
    """The line of a round. JSON has no NaN and no infinity: they are null."""
    numbers = {name: value if math.isfinite(value) else None for name, value in scalars(row).items()}
    return json.dumps(numbers) + "\n"
