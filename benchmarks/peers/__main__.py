"""hpctrip against its peers, side by side in one run, on identical data, initial weights and sample order.

    python benchmarks/peers [--shapes W1,W1s,W4,W4tiny,FLUTE] [--turns 3] [--rounds 2] [--out FOLDER]

Installs Flower and pfl-research in environments of their own (once, in the cache folder), then lets the contenders
take turns: in a turn each starts, makes one round that warms up and `--rounds` that count. A round is a whole one:
train, aggregate, evaluate (hpctrip also records it). Before any time is compared, all must have ended the first round
with the same parameters; how far they are apart after the last one is said too. Prints medians, ratios and peak
memory; writes rounds.csv and peers.png.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import click
import matplotlib
import numpy as np
import pandas as pd
import tomli_w
import torch
from common import SHAPES, Shape
from rich.console import Console
from rich.table import Table

from hpctrip.app.aggregator import Aggregator
from hpctrip.app.experiment import read_input
from hpctrip.app.host import Host
from hpctrip.base.rng import stream
from hpctrip.learn.data.cached import cache_dir
from hpctrip.ranks.serial import SerialRanks
from hpctrip.record.reader import open_run
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.state import State

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PEERS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}
LIMITS = {  # hpctrip's sequential engine may take at most this share of the peer's round (CPU, two cores, two hosts)
    "W1": {"flower": 0.62, "pfl": 0.75},
    "W1s": {"flower": 0.52, "pfl": 0.62},
    "W4": {"flower": 0.1, "pfl": 0.5},
    "W4tiny": {"flower": 0.1, "pfl": 0.5},
}
OURS = "hpctrip sequential"
TOLERANCE = 1e-2
"""Of the change that the first round makes to the parameters. On W1 and W1s, sums in another order (channels-last, two
threads) move it by up to 0.2 %; one of 20 sites that visits its samples backwards makes 2 %, one missing batch 3 %.
Over more rounds rounding grows: where a maximum of pooling changes its place, a whole gradient moves."""


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


def write_case(folder: Path, name: str, shape: Shape, num_rounds: int) -> None:
    """Data, input file, and what hpctrip will draw from its seed: initial weights and sample orders."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(asdict(shape)))
    for part, size in (("train", shape.num_sites * shape.samples), ("test", shape.test_samples)):
        draw = stream(0, f"peers/{part}")
        np.save(folder / f"{part}_images.npy", draw.integers(256, size=(size, 28, 28), dtype=np.uint8))
        np.save(folder / f"{part}_labels.npy", draw.integers(62, size=size))
    everyone = shape.cohort == shape.num_sites
    tables = {
        "name": name,
        "plugins": [str(HERE / "plugin.py")],
        "sites": {"num_sites": shape.num_sites},
        "workload": {"kind": "peers", "folder": str(folder)},
        "partition": {"kind": "iid", "samples_per_site": shape.samples},
        "policy": {"kind": "all"} if everyone else {"kind": "random", "k": shape.cohort},
        "train": {"lr": shape.lr, "batch_size": shape.batch_size},
        "server": {"kind": "fedavg-kept"},
        "stop": {"target_accuracy": 1.0, "max_rounds": num_rounds},
    }
    path = folder / "hpctrip.toml"
    path.write_text(tomli_w.dumps(tables))
    experiment = read_input([str(path)]).experiment
    task, ranks = experiment.workload.task(0), SerialRanks()
    host = Host(experiment, experiment.num_sites(), task, ranks, torch.device("cpu"))
    np.save(folder / "params.npy", host.initial_params.numpy())
    simulation, state, orders = Aggregator(host).simulation, State(), []
    for _ in range(num_rounds):
        draft = simulation.begin(state)
        orders.append([host.site_work(int(site), draft.round).order for site in draft.cohort])
        state, _ = simulation.finish(draft, Outcome.assumed(np.ones(len(draft.cohort))))
    np.save(folder / "orders.npy", np.array(orders))


def contenders(
    peers: dict[str, Path], case: Path, cohort: int, num_rounds: int, num_hosts: int
) -> dict[str, list[str]]:
    """Command lines by name; each writes REPORT.npy and, but for hpctrip, REPORT.json."""
    here = [str(case), "REPORT", str(num_rounds)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={num_hosts}"]
    hpctrip = [
        "mpirun",
        "-n",
        str(num_hosts + 1),
        sys.executable,
        "-m",
        "hpctrip",
        str(case / "hpctrip.toml"),
    ]
    hpctrip += ["--out", "REPORT.h5", "--overwrite", "-o"]
    block = min(32, -(-cohort // num_hosts))
    return {
        "plain loop": [sys.executable, str(HERE / "plain.py"), *here],
        "flower": [str(peers["flower"]), str(HERE / "flower.py"), *here, str(num_hosts)],
        "pfl": [str(peers["pfl"]), *torchrun, str(HERE / "pfl_research.py"), *here],
        OURS: [*hpctrip, 'engine.name="sequential"'],
        "hpctrip stacked": [*hpctrip, f'engine={{name="stacked", sites_per_block={block}}}'],
    }


def run_once(command: list[str], report: Path) -> tuple[list[float], float]:
    """Seconds of every round after the first, and the peak memory in MB of all its processes together."""
    env = os.environ | {"PEERS_PARAMS": str(report.with_suffix(".npy")), "RAY_worker_niceness": "0"}
    env |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    env["PYTHONPATH"] = str(ROOT) if command[0] == "mpirun" else ""
    command = [part.replace("REPORT", str(report)) for part in command]
    with open(report.with_suffix(".log"), "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=report.parent)
        peak_mb = PeakMemory(process.pid)
        code = process.wait()
    if code:
        raise click.ClickException(f"{command} ended with code {code}; see {log.name}")
    if command[0] == "mpirun":
        rows = open_run(report.with_suffix(".h5")).rounds
        seconds = list(rows["wall_s"])
    else:
        seconds = json.loads(report.with_suffix(".json").read_text())["seconds"]
    return seconds[1:], peak_mb.stop()


class PeakMemory:
    """The largest sum of the proportional set sizes (shared pages counted once) of a process and its descendants."""

    def __init__(self, pid: int):
        self.pid, self.peak_kb, self.ended = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def stop(self) -> float:
        """The peak in MB."""
        self.ended.set()
        self.thread.join()
        return self.peak_kb / 1e3

    def _watch(self) -> None:
        # once a second: reading it costs the kernel some milliseconds a process
        while not self.ended.wait(1.0):
            self.peak_kb = max(self.peak_kb, sum(map(_pss_kb, self._family())))

    def _family(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(stat.parent.name))
        family = [self.pid]
        for pid in family:
            family += children.get(pid, [])
        return family


def _pss_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def check_equal(reports: dict[str, Path], initial: np.ndarray) -> None:
    """All contenders have trained the same model, else there is nothing to compare."""
    results = {name: np.load(path.with_suffix(".npy")) for name, path in reports.items()}
    reference, *others = results
    changes = np.linalg.norm(results[reference] - initial, axis=1)  # by the first round; by all
    for name in others:
        first, last = np.linalg.norm(results[name] - results[reference], axis=1) / changes
        click.echo(f"{name} is {first:.2%} from {reference} after the first round, {last:.2%} after the last")
        if not first < TOLERANCE:
            raise click.ClickException(
                f"{name} has trained another model (bound {TOLERANCE:.0%}): nothing to compare"
            )


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
