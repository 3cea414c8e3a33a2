"""hpctrip against its peers, side by side in one run, on identical data, initial weights and sample order.

    python benchmarks/peers [--shapes W1,W1s,W4,W4tiny,FLUTE] [--turns 3] [--rounds 2] [--out FOLDER]

Installs Flower and pfl-research in environments of their own (once, in the cache folder), then lets the contenders
take turns: in a turn each starts, makes one round that warms up and `--rounds` that count. A round is a whole one:
train, aggregate, evaluate (hpctrip also records it). Before any time is compared, all must have ended the first round
with the same parameters; how far they are apart after the last one is said too. Prints medians, ratios and peak
memory; writes rounds.csv and peers.png.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import matplotlib
import numpy as np
import pandas as pd
import torch
from cases import write_case
from common import SHAPES, Shape
from contest import check_equal, contenders, run_once
from rich.console import Console
from rich.table import Table

from hpctrip.learn.data.cached import cache_dir

PEERS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}
LIMITS = {  # hpctrip's sequential engine may take at most this share of the peer's round (CPU, two cores, two hosts)
    "W1": {"flower": 0.62, "pfl": 0.75},
    "W1s": {"flower": 0.52, "pfl": 0.62},
    "W4": {"flower": 0.1, "pfl": 0.5},
    "W4tiny": {"flower": 0.1, "pfl": 0.5},
}
OURS = "hpctrip sequential"


def install(folder: Path, name: str) -> Path:
    """The Python of the peer's environment, with the torch version that hpctrip runs on. Made where it is missing."""
    python, stamp = folder / name / "bin/python", folder / name / "installed.txt"
    torch_version = torch.__version__.split("+")[0]
    wanted = f"torch=={torch_version}\n{PEERS[name]}\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        click.echo(f"installing {PEERS[name]} in {folder / name}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
        pins = folder / name / "constraints.txt"
        pins.write_text(f"torch=={torch_version}\n")
        pip = [python, "-m", "pip", "install", "--quiet", "--constraint", pins]
        # first: a looser request may bring CUDA
        subprocess.run([*pip, f"torch=={torch_version}"], check=True)
        subprocess.run([*pip, PEERS[name]], check=True)
        stamp.write_text(wanted)
    return python


def measure(
    name: str, shape: Shape, folder: Path, turns: int, rounds: int, chosen: list[str], hosts: int
) -> pd.DataFrame:
    """One row per measured round: shape, contender, turn, seconds, peak_mb."""
    case = folder / f"case-{name}"
    write_case(case, name, shape, rounds + 1)
    peers = {peer: install(folder, peer) for peer in PEERS}
    commands = contenders(peers, case, shape.cohort, rounds + 1, hosts)
    if unknown := [name for name in chosen if name not in commands]:
        raise click.BadParameter(f"--only {unknown[0]!r}: contenders are {', '.join(commands)}")
    rows, reports = [], {}
    for turn in range(turns):
        for contender in chosen or commands:
            report = case / contender.replace(" ", "-")
            seconds, peak_mb = run_once(commands[contender], report)
            reports[contender] = report
            click.echo(
                f"{name} turn {turn + 1} {contender}: " + ", ".join(f"{s:.3f}" for s in seconds) + " s"
            )
            rows += [(name, contender, turn, s, peak_mb) for s in seconds]
        check_equal(reports, np.load(case / "params.npy"))
    return pd.DataFrame(rows, columns=["shape", "contender", "turn", "seconds", "peak_mb"])


def table(rounds: pd.DataFrame, limits: dict[str, dict[str, float]]) -> Table:
    """Medians, how the others compare with hpctrip's engine, and the acceptance lines."""
    result = Table("shape", "contender", "median s", "min s", "our share", "limit", "peak MB")
    for (shape, name), group in rounds.groupby(["shape", "contender"], sort=False):
        ours = rounds[(rounds["shape"] == shape) & (rounds["contender"] == OURS)]["seconds"].median()
        median, limit = group["seconds"].median(), limits.get(shape, {}).get(name)
        share = ours / median
        verdict = "" if limit is None else f"{limit:g} " + ("met" if share <= limit else "NOT MET")
        numbers = f"{median:.3f}", f"{group['seconds'].min():.3f}", f"{share:.2f}", verdict
        result.add_row(shape, name, *numbers, f"{group['peak_mb'].max():.0f}")
    return result


def picture(rounds: pd.DataFrame, path: Path) -> None:
    """Median seconds a round, one panel a shape."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shapes = list(rounds["shape"].unique())
    figure, panels = plt.subplots(
        1, len(shapes), figsize=(3 * len(shapes), 3), squeeze=False, layout="constrained"
    )
    for shape, panel in zip(shapes, panels[0], strict=True):
        medians = rounds[rounds["shape"] == shape].groupby("contender", sort=False)["seconds"].median()
        colours = ["tab:blue" if name.startswith("hpctrip") else "tab:grey" for name in medians.index]
        panel.bar_label(panel.barh(list(medians.index), medians, color=colours), fmt="%.2f", padding=2)
        panel.set(title=shape, xlabel="s a round (median)", xlim=(0, 1.2 * medians.max()))
        panel.invert_yaxis()
    figure.savefig(path, dpi=150)


@click.command(help=__doc__)
@click.option("--shapes", default=",".join(SHAPES), show_default=True)
@click.option("--only", default="", help="Contenders, separated by commas; default: all.")
@click.option("--turns", default=3, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(1), help="Measured in each turn.")
@click.option("--hosts", default=2, show_default=True, type=click.IntRange(1), help="Processes that train.")
@click.option(
    "--small", is_flag=True, help="A tenth of the sites, to see that everything works; compares nothing."
)
@click.option("--out", default="results/peers", show_default=True, type=click.Path(path_type=Path))
def main(shapes: str, only: str, turns: int, rounds: int, hosts: int, small: bool, out: Path) -> None:
    """Measure all, print the table, write the files."""
    if shutil.which("mpirun") is None:
        raise click.ClickException("mpirun is not on the PATH")
    folder = cache_dir() / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    began, load = time.time(), os.getloadavg()[0]
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    frames = []
    for name in shapes.split(","):
        shape = SHAPES[name]
        if small:
            tenth = max(2, shape.cohort // 10)
            shape = replace(shape, num_sites=tenth * shape.num_sites // shape.cohort, cohort=tenth)
        frames.append(measure(name, shape, folder, turns, rounds, chosen, hosts))
    result = pd.concat(frames, ignore_index=True)
    out.mkdir(parents=True, exist_ok=True)
    result.to_csv(out / "rounds.csv", index=False)
    picture(result, out / "peers.png")
    Console().print(table(result, {} if small else LIMITS))
    click.echo(
        f"{', '.join(PEERS.values())}, torch {torch.__version__}; {hosts} hosts on {os.cpu_count()} cores, "
        f"load at the start {load:.1f}; {turns * rounds} rounds each; {time.time() - began:.0f} s in all; {out}"
    )


if __name__ == "__main__":
    main()
