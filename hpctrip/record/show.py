"""One results file for people and for other tools: a summary on one screen, and CSV files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from hpctrip.base.io import json_text, write_new
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S, J_PER_KWH
from hpctrip.record import cluster
from hpctrip.record.cluster import ClusterRun
from hpctrip.record.csv import csv_bytes
from hpctrip.record.facts import PHASES, facts
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile

Facts = Mapping[str, Any]
"""`facts` of a run."""


def show(run: Run | ClusterRun) -> Table:
    """The summary as a rich table of two columns that fits one screen: what the file says is escaped and cut."""
    table = Table(
        title=Text(printable(str(run.path))),
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    said = cluster.summary(run) if isinstance(run, ClusterRun) else summary(run)
    for name, text in said.items():
        table.add_row(name, Text(printable(text, 200)))  # not markup: paths and names may hold brackets
    return table


def summary(run: Run) -> dict[str, str]:
    """What a person asks of a run: {question: answer}. Raises InputError where the file lacks columns."""
    known = facts(run)
    reason = f": {known['stop_reason']}" if known["stop_reason"] else ""
    commit = f", commit {known['git_commit'][:12]}{' with changes' if known['git_dirty'] else ''}"
    source = f": {known['data_source']}" if known["data_source"] else ""
    return {
        "status": f"{known['status']}{reason}",
        "scenario": f"{known['scenario'] or 'unnamed'}, seed {known['seed']}",
        "policy": known["policy"],
        "data": f"{known['workload']}{source}{_synthetic(known['synthetic_data'])}",
        "local training": local_training(known["local_training"]),
        "sites": f"{known['num_sites']}, power {known['power']}{_synthetic(known['synthetic_power'])}",
        **(_progress(known) if known["num_rounds"] else {"rounds": "none finished yet"}),
        **_target(known),
        **_measured(known),
        "ran on": _machines(known),
        "model digest": known["params_digest"] or "not known",
        "hpctrip": known["hpctrip_version"] + (commit if known["git_commit"] else ""),
        "written": f"{known['updated_utc']}, started {known['created_utc']}",
        **_not_recorded(known["not_recorded"]),
    }


def local_training(train: Mapping[str, Any]) -> str:
    """What a site does in a round, by the keys of [train]."""
    work = {key: value for key, value in train.items() if value}
    return (
        ", ".join(text.format(_plain(work[key])) for key, text in _WORK.items() if key in work) or "not known"
    )


_WORK = {
    "optimizer": "{}",
    "keep_optimizer": "kept from round to round",
    "lr": "learning rate {}",
    "momentum": "momentum {}",
    "weight_decay": "weight decay {}",
    "prox_mu": "prox_mu {}",
    "batch_size": "batches of {}",
    "micro_batch": "{} of them at once",
    "local_epochs": "{} epoch(s) a round",
    "local_steps": "{} step(s) a round",
}


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _not_recorded(names: list[str]) -> dict[str, str]:
    return {"not recorded": f"{', '.join(names)}: the file is older"} if names else {}


def _progress(known: Facts) -> dict[str, str]:
    phases = ", ".join(f"{name} {known[f'{name}_wall_s']:.1f}" for name in PHASES)
    loss, perplexity = known["last_eval_loss"], known["last_eval_perplexity"]
    return {
        "rounds": f"{known['num_rounds']}, {_hours(known['clock_s'])} simulated"
        + (f", {known['stored_rounds']} of them trained before" if known["stored_rounds"] else ""),
        "accuracy": "not evaluated"
        if math.isnan(known["last_accuracy"])
        else f"{known['last_accuracy']:.2%} last, {known['best_accuracy']:.2%} best",
        **({} if math.isnan(loss) else {"held-out loss": f"{loss:.4g} last (perplexity {perplexity:.4g})"}),
        "cohort": f"{known['first_num_sites']} sites first, {known['median_num_sites']:g} median, "
        f"{known['last_num_sites']} last",
        **energy(known),
        "wall time": f"{known['wall_s']:.1f} s: {phases}; "
        f"hosts idle for {known['mean_idle_fraction']:.0%} of training",
    }


def energy(known: Facts) -> dict[str, str]:
    """The simulated bill of a run, as far as it is known, from these `facts`: SPENT, currency, synthetic signals."""
    total_j = known["energy_j"]
    if math.isnan(total_j):
        return {}
    shares = ((name, known[f"{part}_energy_j"] / (total_j or 1)) for name, part in _PARTS.items())
    said = f"{total_j / J_PER_KWH:.4g} kWh simulated: " + ", ".join(f"{n} {s:.0%}" for n, s in shares)
    bills = {"carbon_g": ("carbon", f"{known['carbon_g'] / 1e3:.4g} kg CO2")}
    bills["cost"] = ("price", f"{known['cost']:.4g} {known['currency']}")
    for name, (signal, text) in bills.items():
        if not math.isnan(known[name]):
            said += f"; {text}{_synthetic(signal in known['synthetic_signals'])}"
    return {"energy": said}


_PARTS = {"computing": "compute", "waiting": "wait", "network": "comm"}


def _measured(known: Facts) -> dict[str, str]:
    """What the machines drew; nothing where they counted nothing."""
    total_j, number = known["wall_j"], known["num_measured_rounds"]
    if not number:
        return {}
    shares = ", ".join(
        f"{name} {known[f'{name}_wall_j'] / (total_j or math.nan):.0%}" for name in (*PHASES, "record")
    )
    rounds = "" if number == known["num_rounds"] else f" in {number} of the rounds"
    return {
        "energy drawn": f"{total_j:,.1f} J{rounds}: {shares}; {known['mean_wall_w']:.1f} W, "
        f"{known['samples_per_wall_j']:.4g} samples/J",
        "measured by": ", ".join(known["meters"]),
    }


def _target(known: Facts) -> dict[str, str]:
    target, reached_s = known["target_accuracy"], known["time_to_accuracy_s"]
    if math.isnan(target):
        return {}
    if math.isnan(reached_s):
        return {"time to accuracy": f"{target:.2%} not reached"}
    number = known["time_to_accuracy_round"]
    return {"time to accuracy": f"{_hours(reached_s)} to {target:.2%}, in round {number}"}


def _machines(known: Facts) -> str:
    hosts = f" on {_counted(len(known['hosts']), 'host')}" if known["hosts"] else ""
    named = {
        "transport": known["transport"],
        "MPI": known["mpi_library"].partition("\n")[0],
        "engine": ", ".join(filter(None, (known["engine"], known["blocks"]))),
        "device": ", ".join(known["devices"]),
    }
    words = [f"{name} {fact}" for name, fact in named.items() if fact]
    return ", ".join([_counted(known["num_ranks"], "rank") + hosts, *words])


def _synthetic(is_synthetic: bool) -> str:
    return " (synthetic)" if is_synthetic else ""


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.3f} h"


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")


def export(run: ResultsFile, folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Write one CSV a table, and meta.json with the attributes and the resolved input; returns the files. InputError
    where one of them is there, unless it is to `overwrite`.

    Each file is written at once or not at all. Texts as in `csv_bytes`; what is not finite is null in JSON.
    """
    contents = {f"{name}.csv": csv_bytes(frame) for name, frame in run.tables.items()}
    contents["meta.json"] = json_text({"meta": run.meta, "input": run.input}).encode() + b"\n"
    return write_new({Path(folder, name): content for name, content in contents.items()}, overwrite)
