"""Wall seconds of commands from their start to their end, this version and another one in turn.

    python benchmarks/start.py [--other CHECKOUT] [--turns 3] [--ranks 3,41]

Medians and the ratio for each command. OTHER is a folder with another version, for example one made by `git worktree
add`; both run on this Python.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

OWN = Path(__file__).parents[1]
RUN = ("run", "inputs/smoke.toml", "--overwrite", "--out")


def seconds(checkout: Path, words: list[str]) -> float:
    """The time of one command of the version in a folder."""
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    ended = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise click.ClickException(f"{' '.join(words)}: exit code {ended.returncode}\n{ended.stderr}")
    return time.perf_counter() - began


@click.command(help=__doc__)
@click.option("--other", type=click.Path(exists=True, path_type=Path), help="Folder of the other version.")
@click.option("--turns", default=3, show_default=True, type=click.IntRange(1))
@click.option("--ranks", default="3,41", show_default=True, help="Numbers of ranks, under mpirun.")
def main(other: Path | None, turns: int, ranks: str) -> None:
    """Measure all, and print a line for each command."""
    python = [sys.executable, "-m", "hpctrip"]
    with tempfile.TemporaryDirectory() as folder:
        run = [*RUN, f"{folder}/run.h5"]
        commands = {
            "check": [*python, "check", "inputs/emnist_dynamic.toml"],
            "keys": [*python, "keys"],
            "plan": [*python, "plan", "inputs/emnist_dynamic.toml", "-n", "3"],
            "run": [*python, *run],
            **{f"run, {n} ranks": ["mpirun", "-n", n, *python, *run] for n in ranks.split(",")},
        }
        checkouts = [other.resolve(), OWN] if other else [OWN]
        for name, words in commands.items():
            times: dict[Path, list[float]] = {checkout: [] for checkout in checkouts}
            for turn in range(turns):
                for checkout in checkouts if turn % 2 else checkouts[::-1]:
                    times[checkout].append(seconds(checkout, words))
            medians = [statistics.median(times[checkout]) for checkout in checkouts]
            ratio = f"  ratio {medians[-1] / medians[0]:.2f}" if other else ""
            click.echo(f"{name:14}" + "".join(f"{median:8.2f} s" for median in medians) + ratio)


if __name__ == "__main__":
    main()
