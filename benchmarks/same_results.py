"""Compare the results of two checkouts of hpctrip: every scenario of inputs/, made small, on three ranks, and every
cluster of inputs/cluster/.

    python benchmarks/same_results.py OLD NEW                    # two folders that hold checkouts
    python benchmarks/same_results.py OLD NEW --keep FOLDER      # results of OLD that lie in FOLDER are used again
    python benchmarks/same_results.py OLD NEW --only 'llm*'

For a change that must not change any number. Each scenario runs in both checkouts with the same small overrides. The
results files are then compared bit by bit, with h5py alone: the digest of the trained model, and every column but
those that are measured on this machine. Scenarios that need a download are left out. Prints a row per scenario; the
exit code is 1 where any differs or fails.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import h5py
import numpy as np

SMALL = {
    "emnist": {"workload.train_samples": 480, "workload.test_samples": 100},
    "femnist": {"workload.glyphs.writers": 24, "workload.glyphs.samples": 40},
    "shakespeare": {"workload.train_samples": 240, "workload.test_samples": 50},
    "speech": {"workload.chirps.num_speakers": 20, "workload.chirps.repetitions": 1, "workload.depth": 2},
    "llm": {"workload.pretrain_steps": 10, "workload.sentences.roles": 30},
}
"""{workload: overrides that make its data small}."""
ALL_SMALL = {
    "sites.num_sites": 12,
    "stop.max_rounds": 4,
    "stop.target_accuracy": 0.99,
    "partition.alpha": 0.5,
}
NEEDS_DOWNLOAD = ("speech_ten_words",)
BASE = "emnist_dynamic"
VARIANTS = {
    **{
        f"policy {kind}": {"policy.kind": kind}
        for kind in (
            *("goodput", "oort", "fedcs", "tifl", "power-of-choice", "fedzero", "first-back", "random"),
            *("highest-power", "lowest-latency", "fixed-radius", "all", "centralized"),
        )
    },
    "cost-aware, carbon and price": {
        "carbon.kind": "daily",
        "carbon.mean": 300,
        "price.kind": "daily",
        "price.mean": 0.1,
        "policy.objective.kind": "deadline",
        "policy.objective.deadline_s": "2 h",
    },
    "outages and losses": {
        "faults.mtbf_s": "10 min",
        "faults.mttr_s": "2 min",
        "faults.lost_fraction": 0.1,
        "faults.deadline_s": "3 min",
    },
    "measured power curve": {"throughput.kind": "capped", "power.kind": "trace", "power.path": "synthetic"},
    "oracle of power": {"forecast.kind": "oracle", "power.kind": "trace", "power.path": "synthetic"},
    "fedadam, int8, aggregate clock": {
        "server.kind": "fedadam",
        "compression.kind": "int8",
        "timing.clock": "aggregate-throughput",
    },
    "policy static": {"policy.kind": "static", "policy.k": 5},
    "top-k with error feedback": {"compression.kind": "top-k", "compression.fraction": 0.05},
    "label shards, half an epoch": {"partition.kind": "shards", "train.local_epochs": 0.5},
    "stacked engine": {"engine.name": "stacked"},
}
"""Features that no scenario of inputs/ uses, as overrides of BASE."""
SCHEDULERS = ("fifo", "srtf", "tiresias", "gandiva", "themis", "optimus", "elasticflow-like", "pollux-greedy")
MEASURED = ("wall", "idle_fraction")
"""Columns whose names hold one of these words are measured on this machine."""
LIMIT_S = 300
HPCTRIP = (sys.executable, "-m", "hpctrip")

Overrides = dict[str, object]


def scenarios(checkout: Path) -> Iterator[tuple[str, list[str], Overrides]]:
    """(name, arguments, overrides) of every scenario of a checkout, and of VARIANTS."""
    inputs = checkout / "inputs"
    for path in sorted(inputs.glob("*.toml")):
        if path.stem not in NEEDS_DOWNLOAD:
            yield path.stem, [str(path)], {}
    for name, overrides in VARIANTS.items():
        yield name, [str(inputs / f"{BASE}.toml")], overrides
    for path in sorted(inputs.glob("cluster/*.toml")):
        yield f"cluster {path.stem}", [str(path)], {"jobs.num_jobs": 60}
    for kind in SCHEDULERS:
        cluster = {"jobs.num_jobs": 60, "cluster.num_nodes": 4, "scheduler.kind": kind}
        yield f"cluster {kind}", [str(inputs / "cluster/site.toml")], cluster


def command(files: list[str], overrides: Overrides, out: Path) -> list[str]:
    """The command line of one small run, or of a simulated cluster."""
    tables = [tomllib.loads(Path(file).read_text()) for file in files]
    if "cluster" in tables[0]:
        return [*HPCTRIP, "cluster", *files, *lines(overrides), "--out", str(out), "--overwrite"]
    small = ALL_SMALL | SMALL[tables[0]["workload"]["kind"]]
    if "path" in tables[0].get("sites", {}):  # whose rows are the sites
        del small["sites.num_sites"]
    if "k" in tables[0]["policy"]:
        small["policy.k"] = 5
    kind = overrides.get("partition.kind", tables[0].get("partition", {}).get("kind", "dirichlet"))
    if kind != "dirichlet":
        small.pop("partition.alpha")
    words = lines(small | overrides)
    return ["mpirun", "-n", "3", *HPCTRIP, "run", *files, *words, "--out", str(out), "--overwrite"]


def lines(overrides: Overrides) -> list[str]:
    """The `-o` arguments of these overrides."""
    return [word for key, value in overrides.items() for word in ("-o", f"{key}={value}")]


def ended(checkout: Path, words: list[str]) -> str:
    """Run a command in a checkout; the last line that it printed where it failed."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    try:
        done = subprocess.run(
            words, cwd=checkout, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"took more than {LIMIT_S} s"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"exit code {done.returncode}: {lines[-1] if lines else ''}" if done.returncode else ""


def compared(path: Path) -> dict[str, np.ndarray]:
    """{name: values} of what two equal runs have in common."""
    with h5py.File(path) as file:
        values = {
            name: np.asarray(file.attrs[name]) for name in ("params_digest", "energy_j") if name in file.attrs
        }
        for table, columns in file.items():
            if table == "input":
                continue
            for name, column in columns.items():
                if not any(word in name for word in MEASURED):
                    values[f"{table}/{name}"] = column[()]
    return values


def differences(old: Path, new: Path) -> list[str]:
    """The names of what differs between two results files. What only the new one has is no difference."""
    a, b = compared(old), compared(new)
    return [
        name
        for name in a
        if name not in b or a[name].dtype != b[name].dtype or a[name].tobytes() != b[name].tobytes()
    ]


@click.command()
@click.argument("old", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("new", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the results; OLD's are used again.",
)
@click.option("--only", default="*", show_default=True, help="Pattern of the names to run.")
def main(old: Path, new: Path, keep: Path | None, only: str) -> None:
    """Run and compare."""
    checkouts = {"old": old.resolve(), "new": new.resolve()}
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        in_old = {name for name, *_ in scenarios(checkouts["old"])}
        for name, _, overrides in scenarios(checkouts["new"]):
            if not fnmatch.fnmatch(name, only) or name not in in_old:
                continue
            trouble = []
            files = {which: folder / f"{name.replace(' ', '_')}.{which}.h5" for which in checkouts}
            files["new"].unlink(missing_ok=True)
            for which, checkout in checkouts.items():
                if not files[which].exists():
                    (arguments,) = (words for each, words, _ in scenarios(checkout) if each == name)
                    if problem := ended(checkout, command(arguments, overrides, files[which])):
                        trouble.append(f"{which}: {problem}")
            trouble = trouble or differences(*files.values())
            failed += bool(trouble)
            verdict = "; ".join(trouble)
            if not trouble:
                columns, others = (compared(files[which]).keys() for which in ("old", "new"))
                added = ", ".join(sorted(others - columns))
                verdict = f"equal in {len(columns)} columns and attributes" + f"; added: {added}" * bool(
                    added
                )
            print(f"{name:32} {verdict}", flush=True)
    print(f"{failed} of the scenarios differ or failed" if failed else "all scenarios are equal")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
