"""The kill test of studies: SIGKILL to the whole process group of a study at random moments, started again each time.

    python benchmarks/study_kill_test.py --kills 10 --seed 1

The study is inputs/studies/smoke.toml with more rounds. In the end its ledger must be that of a study that nobody
disturbed, but for wall times, and no run that was finished at a kill may have been made again. Prints what was finished
at every kill; exit code 1 where anything differs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import pandas as pd

ROOT = Path(__file__).parents[1]
LINES = ["stop.max_rounds=60", "stop.target_accuracy=1.0", "checkpoint.every_rounds=1", "seed=0..9"]


def command(out: Path) -> list[str]:
    """The study, over twenty runs of some seconds."""
    study = [
        sys.executable,
        "-m",
        "hpctrip",
        "study",
        str(ROOT / "inputs/studies/smoke.toml"),
        "--out",
        str(out),
    ]
    return [*study, *(word for line in LINES for word in ("-o", line))]


def started(out: Path) -> subprocess.Popen[bytes]:
    """The study in a process group of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command(out), start_new_session=True, env=environment, stdout=subprocess.DEVNULL)


def ledger(out: Path) -> pd.DataFrame:
    """What it says of every run, but for wall times."""
    return pd.read_csv(out / "smoke" / "ledger.csv").drop(columns="wall_s").set_index("run")


def finished(out: Path) -> dict[Path, int]:
    """The results files of finished runs, and when they were written."""
    from hpctrip.record.reader import open_run

    files = sorted((out / "runs").glob("*.h5"))
    return {file: file.stat().st_mtime_ns for file in files if open_run(file).status == "finished"}


def wait_for_work(process: subprocess.Popen[bytes], out: Path) -> None:
    """Until a worker writes, or the study is over: most of a start is the loading of packages."""

    def written() -> set[tuple[str, int]]:
        found = set()
        for file in (out / "runs").glob("*.h5.ckpt?"):
            with contextlib.suppress(FileNotFoundError):  # its run has just finished
                found.add((file.name, file.stat().st_mtime_ns))
        return found

    before = written()
    while process.poll() is None and not written() - before:
        time.sleep(0.05)


@click.command()
@click.option("--kills", default=10, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--longest", default=20.0, show_default=True, help="Seconds after a start, at most, until the kill."
)
def main(kills: int, seed: int, longest: float) -> None:
    """Kill, start again, compare."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        out, undisturbed = Path(folder, "out"), Path(folder, "undisturbed")
        done: dict[Path, int] = {}
        twice = 0
        for kill in range(kills):
            process = started(out)
            wait_for_work(process, out)
            time.sleep(rng.uniform(0, longest))
            over = process.poll() is not None
            os.killpg(process.pid, signal.SIGKILL) if not over else None
            process.wait()
            now = finished(out)
            twice += sum(now.get(file) != written for file, written in done.items())
            done = now
            print(f"kill {kill + 1}: {len(done)} finished{' (it was over)' if over else ''}", flush=True)
        if started(out).wait() or started(undisturbed).wait():
            sys.exit("a study failed")
        twice += sum(finished(out).get(file) != written for file, written in done.items())
        same = ledger(out).equals(ledger(undisturbed))
        digests = (ledger(out)["digest"] == ledger(undisturbed)["digest"]).all()
    print(f"{kills} kills: same ledger: {same}, same digests: {digests}, runs made twice: {twice}")
    sys.exit(0 if same and digests and not twice else 1)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
