"""A text stream that whoever writes to it need not mind: where it breaks, the text is lost, and nothing else."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, TextIO

from hpctrip.base.text import encodable


class Unfailing:
    """Passes text on to a stream until that fails: a reader that is gone (`| head`), a terminal that was closed, a log
    on a full disk, a closed or absent file. What the stream's encoding cannot say is escaped. To be used as rich's
    `Console(file=...)`, which would otherwise end the process where a pipe is broken."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Is there a terminal at its end?"""
        with suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def write(self, text: str) -> int:
        """As of any stream, but nothing is raised."""
        if self._stream is not None:
            try:
                self._stream.write(encodable(text, self._stream.encoding or "utf-8"))
            except (OSError, ValueError) as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        """As of any stream, but nothing is raised."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def _lose(self, error: Exception) -> None:
        if isinstance(error, BlockingIOError):
            return  # somebody has made the terminal non-blocking, and it is behind: it will come back
        stream, self._stream = self._stream, None
        # what is left in its buffer would fail again, and then the exit code, when Python flushes it at the very end
        with suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())  # type: ignore[union-attr]
            os.close(null)
