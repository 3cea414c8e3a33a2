"""The kill test: SIGKILL to a random rank at a random moment, resumed on another number of ranks, until it is finished.

    python benchmarks/kill_test.py --runs 100 --seed 1
    python benchmarks/kill_test.py --runs 30 --folder DIR     # in parts: --runs 60, 100 with the same folder go on
    python benchmarks/kill_test.py --rivals 0.5               # half of the runs beside a second job on the same --out
    python benchmarks/kill_test.py --launch "srun -n {n}"     # another launcher
    python benchmarks/kill_test.py --states quorum,buffered   # sites that come and go, updates under way

Every run must end with the digest, the clock, the cohorts and the accuracies of a run that nobody disturbed, and at
no time may its results file or all of its checkpoints be unreadable. A moment is either some time within a round, on
any rank, or a step in writing a file, on rank 0: half of it written, not yet forced to disk, not yet renamed, just
renamed. A rival is a second job, `run --resume` with the same --out, that starts at a random moment: it is refused
while the first one lives, goes on with the run after that was killed, and then it is the first that has to wait.
Prints the counts; exit code 1 where any run fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from hpctrip.base.rows import columns
from hpctrip.record import checkpoint
from hpctrip.record.reader import Run, open_run
from hpctrip.record.verify import verify
from hpctrip.sim.rounds import RoundRow

ROUNDS = 8
SCENARIO = {
    "name": '"killed"',
    "sites.num_sites": "6",
    "workload.train_samples": "120",
    "workload.test_samples": "100",
    "stop.target_accuracy": "1.0",
    "stop.max_rounds": str(ROUNDS),
    "checkpoint.every_rounds": "1",
    "watchdog.silent_s": "60",
}
STATES = {
    "fedavg": {},
    "momentum": {"server.kind": '"fedavg"', "server.momentum": "0.9", "server.nesterov": "true"},
    "fedadam": {"server.kind": '"fedadam"'},
    "top-k": {"compression.kind": '"top-k"'},
}
"""What a checkpoint holds besides the model: nothing, slots of the server's optimiser, residuals of sites."""
COMING = {
    "timing.seconds_per_sample": "30",
    "policy": '{kind="while-clean"}',
    "carbon": '{kind="csv", path="zone_?.csv", value_column="g_per_kwh"}',
    "availability.clean": '{kind="window", below=100, provision_s=60, hold_s=60, notice_s=900, release="now"}',
    "availability.slurm": '{kind="queue", wait_s=120, sigma=0.5}',
    "availability.grid": '{kind="events", path="events.csv"}',
}
UNDER_WAY = {
    "quorum": {"rounds": '{kind="quorum", num=2, grace_s=30, longest_s=7200}', **COMING},
    "buffered": {"rounds": '{kind="buffered", num=2, concurrency=4}', **COMING},
}
"""Updates that are under way, of sites with windows, queues and an event."""
FILES = {
    f"zone_{zone}.csv": "time_s,g_per_kwh\n"
    + "".join(f"{60 * minute},{60 if (minute + 7 * zone) % 20 < 12 else 140}\n" for minute in range(120))
    for zone in range(3)
}
FILES["events.csv"] = "site,start_s,duration_s,depth,notice_s\n0,600,1800,0.5,300\n3,900,600,1,0\n"
LAUNCH = "KILL_TEST_LAUNCH"
"""Environment variable with the launcher."""
HUNG = -1000
REFUSED = 2
"""Exit code of a job that finds another one at work."""
STEPS = ("half", "fsync", "replace", "renamed")
MEASURED = {name for name in columns(RoundRow) if name.endswith("wall_s")} | {"idle_fraction", "train_wall_s"}
"""Columns that no two runs share."""


def suicide(plan: dict) -> None:
    """Arrange for this process to kill itself at the planned moment; called in the rank, before hpctrip starts."""
    from hpctrip.base.process import launched_rank

    if launched_rank() != plan["rank"]:
        return

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if plan["moment"] == "round":
        from hpctrip.ranks.base import Phase

        enter = Phase.enter

        def enter_or_die(phase: Phase, name: str, round: int) -> None:
            enter(phase, name, round)
            if name == "train" and round >= plan["round"]:
                threading.Timer(plan["delay_s"], die).start()

        Phase.enter = enter_or_die  # type: ignore[method-assign]
        return
    replace, fsync, seen = os.replace, os.fsync, Counter()

    def is_it(path: str) -> bool:
        is_file = plan["file"] == ("checkpoint" if ".ckpt" in Path(path).name else "results")
        seen[plan["step"]] += is_file
        return is_file and seen[plan["step"]] == plan["nth"]

    def hit_fsync(number: int) -> None:
        path = os.readlink(f"/proc/self/fd/{number}")
        if plan["step"] in ("half", "fsync") and is_it(path):
            if plan["step"] == "half":
                os.ftruncate(number, os.fstat(number).st_size // 2)
            die()
        fsync(number)

    def hit_replace(source: str, target: str) -> None:
        hit = plan["step"] in ("replace", "renamed") and is_it(str(target))
        if hit and plan["step"] == "replace":
            die()
        replace(source, target)
        if hit:
            die()

    os.replace, os.fsync = hit_replace, hit_fsync


def arguments(out: Path, state: str) -> list[str]:
    """hpctrip's, to start or resume the run."""
    settings = {**SCENARIO, **(STATES | UNDER_WAY)[state]}
    return ["run", "--resume", "--out", str(out), *(f"-o{key}={value}" for key, value in settings.items())]


def launch(
    num_ranks: int, out: Path, state: str, plan: dict | None, log: str = "", limit_s: float = 300
) -> int:
    """Start or resume the run; the exit code. HUNG: it had to be ended."""
    command = [sys.executable, __file__] if plan else [sys.executable, "-m", "hpctrip"]
    command += arguments(out, state)
    if num_ranks > 1:
        command = [*shlex.split(os.environ[LAUNCH].format(n=num_ranks)), *command]
    environment = {
        **os.environ,
        "HPCTRIP_KILL": json.dumps(plan),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    with open(out.with_suffix(f"{log}.log"), "ab") as lines:
        lines.write(f"--- {num_ranks} rank(s), plan {plan}\n".encode())
        lines.flush()
        try:
            return subprocess.run(
                command, env=environment, stdout=lines, stderr=lines, timeout=limit_s, cwd=out.parent
            ).returncode
        except subprocess.TimeoutExpired:
            return HUNG


def undisturbed(folder: Path, states: Iterable[str]) -> dict[str, Run]:
    """What each state must come to; made in this process, which loads hpctrip's packages once."""
    from hpctrip.cli.main import cli

    references = {}
    for state in states:
        path = folder / f"undisturbed_{state}.h5"
        with (
            open(path.with_suffix(".log"), "a") as log,
            contextlib.redirect_stdout(log),
            contextlib.chdir(folder),
        ):
            cli(arguments(path, state), standalone_mode=False)
        references[state] = open_run(path)
    return references


class Rival:
    """A second job on the same results file, from a random moment on."""

    RAN, REFUSED = "ran to the end", "was refused"

    def __init__(self, rng: random.Random, out: Path, state: str):
        self._out, self._state = out, state
        self._delay_s, self._num_ranks = rng.uniform(0, 4), rng.randint(1, 2)
        self.code = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(self._delay_s)
        self.code = launch(self._num_ranks, self._out, self._state, None, ".rival")

    def ended(self) -> str:
        """Wait for its end; how it ended."""
        self._thread.join()
        if (
            self.code == REFUSED
            and "is being written by" not in self._out.with_suffix(".rival.log").read_text()
        ):
            return "was refused, but not for the other job"
        return {0: self.RAN, REFUSED: self.REFUSED}.get(self.code, f"exit code {self.code}")

    def at_work(self, out: Path) -> bool:
        """Was it the reason why the last launch was refused?"""
        return "is being written by" in out.with_suffix(".log").read_text().rpartition("--- ")[2]


def plan_of(rng: random.Random, num_ranks: int) -> dict:
    """A random rank at a random moment; half of the time rank 0 in the middle of a file."""
    if rng.random() < 0.5:
        file, step = rng.choice(["results", "checkpoint"]), rng.choice(STEPS)
        return {"rank": 0, "moment": "write", "file": file, "step": step, "nth": rng.randint(1, 4)}
    return {
        "rank": rng.randrange(num_ranks),
        "moment": "round",
        "round": rng.randint(1, ROUNDS - 1),
        "delay_s": rng.uniform(0, 0.3),
    }


def difference(run: Run, other: Run) -> str:
    """The first thing in which two runs differ and must not; "" where there is none."""
    for name in ("params_digest", "status", "stop_reason"):
        if run.meta[name] != other.meta[name]:
            return f"{name}: {run.meta[name]} instead of {other.meta[name]}"
    for table in ("rounds", "cohorts", "candidates"):
        one, two = getattr(run, table), getattr(other, table)
        for column in two:
            if column in MEASURED:
                continue
            if not np.array_equal(one[column], two[column], equal_nan=two[column].dtype.kind == "f"):
                return f"/{table}/{column}"
    return ""


def survives(
    rng: random.Random, folder: Path, index: int, references: dict[str, Run], counts: Counter, rivals: float
) -> str:
    """One run, killed once or twice, beside a rival in a share `rivals` of them; what went wrong, or ""."""
    state, out = rng.choice(list(references)), folder / f"run{index}.h5"
    num_ranks, kills = rng.randint(1, 4), rng.choice([1, 1, 2])
    rival = Rival(rng, out, state) if rng.random() < rivals else None
    while kills:
        plan = plan_of(rng, num_ranks)
        code = launch(num_ranks, out, state, plan)
        if code == HUNG:
            return "hung after the kill"
        if code == REFUSED and not (rival and rival.at_work(out)):
            return "refused, although no rival was at work"
        if code in (0, REFUSED):  # finished before the planned moment, or by the rival: begin again, alone
            counts["refused beside a rival" if code else "finished before the kill, done again"] += 1
            if rival:
                rival.ended()
            for file in (out, *checkpoint.generations(out)):
                file.unlink(missing_ok=True)
            continue
        kills -= 1
        counts["killed"] += 1
        moment = "within a round" if plan["moment"] == "round" else f"writing {plan['file']}"
        counts[f"  rank {'0' if plan['rank'] == 0 else '> 0'}, {moment}"] += 1
        if out.exists() and (faults := verify(open_run(out))):
            return f"results file after a kill: {faults[0]}"
        checkpoint.newest(out)  # raises where there are some but none is whole
        counts["results files read after a kill"] += out.exists()
        counts["checkpoints read after a kill"] += any(file.exists() for file in checkpoint.generations(out))
        num_ranks = rng.choice([n for n in range(1, 5) if n != num_ranks])
    code = launch(num_ranks, out, state, None)
    if rival:
        ended = rival.ended()
        counts[f"rival {ended}"] += 1
        if ended not in (Rival.RAN, Rival.REFUSED):
            return f"rival: {ended}"
        if code == REFUSED and rival.at_work(out):
            code = launch(num_ranks, out, state, None)
    if code:
        return f"resumed on {num_ranks} rank(s): exit code {code}"
    if faults := verify(open_run(out)):
        return f"results file: {faults[0]}"
    kept = {out.name, *(path.name for path in checkpoint.generations(out))}
    if left := {path.name for path in folder.glob(f"{out.name}*")} - kept:
        return f"left behind: {', '.join(sorted(left))}"
    return difference(open_run(out), references[state])


@click.command()
@click.option("--runs", default=100, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Keep files, logs and counts there, and go on from them.",
)
@click.option("--rivals", default=0.0, show_default=True, help="Share of the runs beside a second job.")
@click.option(
    "--launch", "launcher", default="mpirun -n {n}", show_default=True, help="What starts {n} ranks."
)
@click.option(
    "--states", default=",".join(STATES), show_default=True, help=f"Also {' and '.join(UNDER_WAY)}."
)
def main(runs: int, seed: int, folder: Path | None, rivals: float, launcher: str, states: str) -> None:
    """Kill runs and resume them."""
    os.environ[LAUNCH] = launcher
    with tempfile.TemporaryDirectory() as temporary:
        folder = (folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        references = undisturbed(folder, states.split(","))
        journal = folder / f"runs_seed{seed}.jsonl"  # a line per run: [what went wrong, counts]
        journal.touch()
        for index in range(len(journal.read_text().splitlines()), runs):
            rng, counts = random.Random(f"{seed}, {index}"), Counter()
            try:
                problem = survives(rng, folder, index, references, counts, rivals)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                print(f"run {index}: {problem} (log: {folder / f'run{index}.log'})", flush=True)
            with open(journal, "a") as file:
                print(json.dumps([problem, counts]), file=file)
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
    failures = sum(bool(problem) for problem, _ in lines)
    counts = sum((Counter(counts) for _, counts in lines), Counter())
    survived = len(lines) - failures
    print(f"runs {len(lines)}, same digest, clock, cohorts and accuracies as undisturbed: {survived}")
    for name, count in sorted(counts.items(), key=lambda item: item[0].startswith(" ")):
        print(f"{name}: {count}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    kill = json.loads(os.environ.pop("HPCTRIP_KILL", "null"))
    if kill:
        from hpctrip.ranks.start import share_start
        from hpctrip.runner.preload import preload

        share_start(preload)
        suicide(kill)
        from hpctrip.cli.main import main as hpctrip

        hpctrip()
    else:
        main()
