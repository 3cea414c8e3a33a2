"""The contenders as commands, one start of each, and whether they have trained the same model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import click
import numpy as np

from hpctrip.record.reader import open_run

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
TOLERANCE = 1e-2
"""Of the change that the first round makes to the parameters. On W1 and W1s, sums in another order (channels-last, two
threads) move it by up to 0.2 %; one of 20 sites that visits its samples backwards makes 2 %, one missing batch 3 %.
Over more rounds rounding grows: where a maximum of pooling changes its place, a whole gradient moves."""


def contenders(
    peers: dict[str, str | Path],
    case: Path,
    cohort: int,
    num_rounds: int,
    num_hosts: int,
    device: str = "cpu",
) -> dict[str, list[str]]:
    """Command lines by name; each writes REPORT.npy and, but for hpctrip, REPORT.json. `peers` are the Pythons of
    those that take part. One host is one process, without MPI and torchrun; on a GPU all are alone on it."""
    here = [str(case), "REPORT", str(num_rounds)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={num_hosts}"]
    mpirun = ["mpirun", "-n", str(num_hosts + 1)]
    hpctrip = [
        sys.executable,
        "-m",
        "hpctrip",
        str(case / "hpctrip.toml"),
        "--out",
        "REPORT.h5",
        "--overwrite",
    ]
    hpctrip = [*(mpirun if num_hosts > 1 else []), *hpctrip, "-o", f"ranks.device={device}", "-o"]
    block = min(32, -(-cohort // num_hosts))
    commands = {"plain loop": [sys.executable, str(HERE / "plain.py"), *here, device]}
    if "flower" in peers:
        commands["flower"] = [str(peers["flower"]), str(HERE / "flower.py"), *here, str(num_hosts)]
    if "pfl" in peers:
        start = torchrun if num_hosts > 1 else []
        commands["pfl"] = [str(peers["pfl"]), *start, str(HERE / "pfl_research.py"), *here]
    return commands | {
        "hpctrip sequential": [*hpctrip, 'engine.name="sequential"'],
        "hpctrip own model": [*hpctrip, 'engine.name="sequential"', "-o", "workload.hand_written=false"],
        "hpctrip stacked": [*hpctrip, f'engine={{name="stacked", sites_per_block={block}}}'],
    }


def run_once(command: list[str], report: Path) -> tuple[list[float], float]:
    """Seconds of every round after the first, and the peak memory in MB of all its processes together."""
    env = os.environ | {"PEERS_PARAMS": str(report.with_suffix(".npy")), "RAY_worker_niceness": "0"}
    env |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    path = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ and sys.executable in command else []
    ours = "hpctrip" in command
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *path] if ours else path)
    command = [part.replace("REPORT", str(report)) for part in command]
    with open(report.with_suffix(".log"), "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=report.parent)
        peak_mb = PeakMemory(process.pid)
        code = process.wait()
    if code:
        last = (Path(log.name).read_text().strip().splitlines() or [""])[-1]
        raise click.ClickException(f"{command} ended with code {code}: {last}; see {log.name}")
    if ours:
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
