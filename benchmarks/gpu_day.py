"""Everything that hpctrip has to show on a GPU, in one command and in the time that there is.

    python benchmarks/gpu_day.py --minutes 9 --out DIR

Runs the parts below, the worthiest first, each in a process of its own: one that fails, crashes, runs out of memory or
hangs ends alone. What does not fit into the time any more is left out, and so is, by name, what lacks a package. Every
number stands in DIR/results.csv and, in words, in DIR/results.txt before the next one is measured; DIR/log.txt has what
the parts printed, DIR/profiles.txt torch's profiles. At the end stand the targets and the fastest block of each shape.

What it needs: this checkout, Python from 3.11 up, torch from 2.6 up, numpy and pydantic; no network, no MPI, no
installation of hpctrip. Whole runs need the packages that hpctrip itself needs, which are named below. What the machine
lacks is carried as wheels: see benchmarks/README.md. `--device cpu --small` is a dry run of everything, `--list` only
says what would run here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for folder in (str(ROOT), str(ROOT / "benchmarks")):
    if folder not in sys.path:
        sys.path.insert(0, folder)

from gpu.conductor import Conductor, Part, Setting, ending_row  # noqa: E402
from gpu.parts import ENGINES, PARTS, PROGRAM  # noqa: E402
from gpu.rows import Written  # noqa: E402
from gpu.targets import faults, targets, winners  # noqa: E402

AHEAD = ("torch", "hpctrip.learn.engines", "hpctrip.learn.evaluate", "shapes", "hpctrip.library")
"""Imported once, before the parts are forked; what is not there is left to the parts that need it."""


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the parts; the exit code is 1 where one failed or found a fault, targets aside."""
    given = parser().parse_args(arguments)
    began = time.monotonic()
    parts = chosen(given.only)
    out = Path(given.out)
    if given.list:
        for part in parts:
            print(line_of(part), *why_not(part, given.device), sep="  ")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    for name in ("log.txt", "profiles.txt"):
        (out / name).unlink(missing_ok=True)
    written = Written(out, lambda: time.monotonic() - began)
    conductor = Conductor(written, began + 60 * given.minutes, AHEAD)
    endings = {}
    for part in parts:
        ending = run(part, conductor, given.device, given.small, out)
        written.say(f"{part.name}: {ending}")
        endings[part.name] = ending
    return closing(written, endings, judged=given.device == "cuda" and not given.small)


def run(part: Part, conductor: Conductor, device: str, small: bool, out: Path) -> str:
    """Run one part, if the machine has what it needs; its end in words."""
    if missing := list(why_not(part, device)):
        return f"left out: {', '.join(missing)}"
    conductor.written.say(f"== {part.name}: {part.purpose}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ending = conductor.run(part, Setting(device, small, folder, str(out.resolve())))
    conductor.written.take(ending_row(part, ending, time.monotonic() - began))
    return ending


def closing(written: Written, endings: dict[str, str], judged: bool) -> int:
    """The summary: how the parts ended, the targets, the winners."""
    written.say("== summary")
    broken = [name for name, ending in endings.items() if not ending.startswith(("done", "left out"))]
    wrong = faults(written.rows)
    written.say(
        f"{sum(ending == 'done' for ending in endings.values())} parts done, {len(broken)} broken, "
        f"{sum(ending.startswith('left out') for ending in endings.values())} left out; {len(wrong)} bounds not met"
    )
    for name in broken:
        written.say(f"  {name}: {endings[name]}")
    for row in wrong:
        written.say(f"  {row.part}: {row.line()}")
    if judged:
        for row in [*targets(written.rows), *winners(written.rows)]:
            written.take(row)
    else:
        written.say("a dry run: targets are those of a GPU, and are not judged")
    return 1 if broken or wrong else 0


def why_not(part: Part, device: str) -> Iterator[str]:
    """What the machine lacks for a part."""
    modules = (*ENGINES, *part.needs, *(part.needs_gpu if device == "cuda" else ()))
    yield from (f"no module {name}" for name in modules if find_spec(name) is None)
    yield from (f"no program {name}" for name in part.programs if shutil.which(name) is None)


def chosen(names: str) -> list[Part]:
    """The parts of these names, separated by commas, in the order of their worth; all where there is none."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := sorted(set(wanted) - {part.name for part in PARTS}):
        raise SystemExit(f"--only {unknown[0]}: the parts are {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if part.name in wanted or not wanted]


def line_of(part: Part) -> str:
    """A part in the help."""
    return f"  {part.name:16} {part.seconds:4.0f} s  {part.purpose}"


def parser() -> argparse.ArgumentParser:
    """The options; the help ends with all parts and what they need."""
    lines = [
        "parts, the worthiest first, with the seconds they are expected to take on an H100",
        f"({sum(part.seconds for part in PARTS):.0f} s in all; estimates):",
        *map(line_of, PARTS),
        "",
        f"all need: {', '.join(ENGINES)}",
        f"runs of the program (rounds-*, devices, accuracies, qlora, nccl-mpi) need: {', '.join(PROGRAM)}",
        "others: "
        + "; ".join(
            f"{part.name}: {', '.join(extra)}"
            for part in PARTS
            if (extra := [*(n for n in part.needs if n not in PROGRAM), *part.needs_gpu, *part.programs])
        ),
        "pfl takes part in rounds-* where it is carried (pfl, dp_accounting, prv_accountant, multiprocess, scipy)",
    ]
    options = argparse.ArgumentParser(
        description=__doc__, epilog="\n".join(lines), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--minutes", type=float, default=9.0, help="all of it ends within so many (default: 9)"
    )
    options.add_argument(
        "--out", default="results/gpu_day", help="folder of the results (default: %(default)s)"
    )
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--small", action="store_true", help="the least of everything, to see that it works")
    options.add_argument("--only", default="", help="names of parts, separated by commas")
    options.add_argument(
        "--list", action="store_true", help="say what would run here, and what would be left out"
    )
    return options


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the running part ends, too
    sys.exit(main())
