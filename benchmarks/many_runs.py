"""CPU seconds of `study status` and `study tables` over a study whose runs are all finished, and the files they open.

    python benchmarks/many_runs.py [--runs 100,1000,10000] [--figure]

One run is trained. The others are copies of it under the identities of other seeds, which no command notices: the
ledger stands for the results of each file that has not changed since.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pandas as pd

OWN = Path(__file__).parents[1]
STUDY = """name = "many"
inputs = ["{own}/inputs/smoke.toml"]
seeds = "0..{last}"
{figure}"""
FIGURE = '[[figure]]\nname = "policies"\n'
COUNTS_FILES = """
import sys
folder, opened = sys.argv[1], []
def hook(event, arguments):
    if event == "open" and str(arguments[0]).startswith(folder):
        opened.append(arguments[0])
sys.addaudithook(hook)
import h5py, atexit
file = h5py.File
class Counted(file):
    def __init__(self, name, *others, **more):
        opened.append(name)
        super().__init__(name, *others, **more)
h5py.File = Counted
atexit.register(lambda: print(len(opened), file=sys.stderr))
from hpctrip.cli import main
sys.argv = ["hpctrip", *sys.argv[2:]]
main.main()
"""
"""A command of hpctrip that reports how many files in a folder it has opened."""


def command(folder: Path, name: str, *more: str) -> tuple[float, int]:
    """(CPU seconds, opened files of the folder) of a command `study NAME`."""
    out = folder / "out"
    words = ["study", name, str(folder / "many.toml"), "--out", str(out), *more]
    before = os.times()
    environment = {**os.environ, "PYTHONPATH": str(OWN)}
    made = [sys.executable, "-c", COUNTS_FILES, str(out), *words]
    ended = subprocess.run(made, cwd=OWN, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise click.ClickException(f"{' '.join(words)}: exit code {ended.returncode}\n{ended.stderr}")
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, int(ended.stderr.split()[-1])


def multiply(folder: Path) -> None:
    """Give all runs of the study the results of the first one."""
    from hpctrip.studies.run_store import file_state
    from hpctrip.studies.studies import read_studies

    (study,) = read_studies(str(folder / "many.toml"), folder / "out")
    first, *others = study.entries
    results = study.runs.results(first.identity)
    for entry in others:
        os.link(results, study.runs.results(entry.identity))
    ledger = pd.read_csv(study.ledger, dtype=str, keep_default_na=False)
    row = ledger[ledger["identity"] == first.identity].iloc[0].to_dict() | {"file_state": file_state(results)}
    rows = [
        row
        | {"run": entry.name, "seed": entry.seed, "identity": entry.identity, "earlier": entry.identity}
        | {"file": f"runs/{entry.identity}.h5"}
        for entry in study.entries
    ]
    pd.DataFrame(rows).to_csv(study.ledger, index=False)
    for name in ("curves.csv", "sites.csv"):
        one = pd.read_csv(study.folder / name, dtype=str, keep_default_na=False)
        copies = pd.concat([one] * len(study.entries), ignore_index=True)
        copies["identity"] = [entry.identity for entry in study.entries for _ in range(len(one))]
        copies.to_csv(study.folder / name, index=False)


@click.command(help=__doc__)
@click.option("--runs", default="100,1000,10000", show_default=True, help="Numbers of runs.")
@click.option("--figure", is_flag=True, help="The study has a figure.")
def main(runs: str, figure: bool) -> None:
    """Measure, and print a line for each number of runs."""
    for number in map(int, runs.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            text = STUDY.format(own=OWN, last=number - 1, figure=FIGURE if figure else "")
            (folder / "many.toml").write_text(text)
            command(folder, "run", "--only", "*seed 0")
            multiply(folder)
            parts = []
            for each in ("status", "tables"):
                times, files = zip(*(command(folder, each) for _ in range(3)), strict=True)
                parts.append(f"{each} {sorted(times)[1]:6.2f} s, {files[-1]:5} files opened")
            click.echo(f"{number:6,} runs: {'   '.join(parts)}")


if __name__ == "__main__":
    main()
