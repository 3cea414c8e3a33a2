"""How a figure script talks: its arguments, one line for bad input, a table of numbers, the picture saved whole."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hpctrip.record.reader import InputError

SUFFIXES = (".png", ".pdf", ".svg")
"""Pictures that can be written."""


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message} (--help says more)\n")


def run_parser(doc: str, out: str | None) -> argparse.ArgumentParser:
    """A parser with the results files `runs` and `--out`; `out` is the picture's default name."""
    made = _parser(doc, out)
    made.add_argument("runs", nargs="+", metavar="RUNS", help="results files, folders or quoted patterns")
    return made


def trace_parser(doc: str, out: str) -> argparse.ArgumentParser:
    """A parser with the power traces `traces`, how to read them, and `--out`."""
    made = _parser(doc, out)
    made.add_argument(
        "traces", metavar="TRACES", help="a folder of cell*.csv(.gz), a file or a quoted pattern"
    )
    made.add_argument(
        "--column",
        choices=("production", "measured"),
        default="production",
        help="which utilisation; some published files hold the measured one only (default: %(default)s)",
    )
    made.add_argument(
        "--flags",
        choices=("true-is-bad", "true-is-good"),
        default="true-is-bad",
        help="what true means in the flag columns (default: %(default)s)",
    )
    return made


def _parser(doc: str, out: str | None) -> argparse.ArgumentParser:
    made = _OneLineParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--out",
        type=_picture,
        default=out and Path(out),
        metavar="FILE",
        help=f"picture to write, {' '.join(SUFFIXES)} (default: {out or 'beside the results file, .png'})",
    )
    return made


def target_option(made: argparse.ArgumentParser) -> None:
    """Add `--target`: the accuracy that time-to-accuracy is measured at."""
    made.add_argument(
        "--target",
        type=_fraction,
        metavar="FRACTION",
        help="measure the time to this accuracy on the recorded curves (default: the runs' own target)",
    )


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text} does not end in {', '.join(SUFFIXES)}")
    return path


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a fraction in (0, 1], such as 0.45")
    return value


def script(main: Callable[[Sequence[str] | None], None]) -> Callable[..., int]:
    """A main function whose bad input is one line on stderr and exit code 2."""

    @functools.wraps(main)
    def guarded(argv: Sequence[str] | None = None) -> int:
        try:
            main(argv)
        except InputError as error:
            line = " | ".join(str(error).splitlines())
            print(f"{Path(sys.modules[main.__module__].__file__).name}: {line}", file=sys.stderr)
            return 2
        return 0

    return guarded


def save(figure: Figure, out: Path) -> None:
    """Write the picture aside, move it into place and print where it is."""
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        figure.savefig(aside, format=out.suffix[1:])
        os.replace(aside, out)
    except OSError as error:
        raise InputError(str(out), f"cannot be written ({error.strerror})", "choose another --out") from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    print(f"picture: {out}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns, the first to the left and the others to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    for line in (head, *rows):
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  ".join((line[0].ljust(widths[0]), *rest)).rstrip())
