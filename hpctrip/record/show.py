"""One results file for people and for other tools: a summary on one screen, and CSV files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from hpctrip.base.errors import InputError
from hpctrip.base.output import replace_file
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.record import cluster
from hpctrip.record.cluster import ClusterRun
from hpctrip.record.csv import csv_bytes
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile


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
    if faults := run.schema_faults():
        raise InputError(faults=faults)
    meta = run.meta
    reason = f": {meta['stop_reason']}" if meta["stop_reason"] else ""
    commit = f", commit {meta['git_commit'][:12]}{' with changes' if meta['git_dirty'] else ''}"
    source = f": {meta['data_source']}" if meta["data_source"] else ""
    return {
        "status": f"{meta['status']}{reason}",
        "scenario": f"{meta['scenario'] or 'unnamed'}, seed {meta['seed']}",
        "policy": _kind(run, "policy"),
        "data": f"{_kind(run, 'workload')}{source}{_synthetic(meta['synthetic_data'])}",
        "local training": local_training(run.settings),
        "sites": f"{len(run.sites)}, power {_kind(run, 'power')}{_synthetic(meta['synthetic_power'])}",
        **(_progress(run.rounds) if len(run.rounds) else {"rounds": "none finished yet"}),
        **_target(run, meta["target_accuracy"]),
        "ran on": _machines(meta),
        "model digest": meta["params_digest"] or "not known",
        "hpctrip": meta["hpctrip_version"] + (commit if meta["git_commit"] else ""),
        "written": f"{meta['updated_utc']}, started {meta['created_utc']}",
        **_added(run),
    }


def local_training(settings: Mapping[str, Any]) -> str:
    """What a site does in a round, by the keys of [train] in an input {dotted key: value}."""
    work = {key.removeprefix("train."): value for key, value in settings.items() if value}
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
    "local_epochs": "{} epoch(s) a round",
    "local_steps": "{} step(s) a round",
}


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _added(run: Run) -> dict[str, str]:
    names = [f"{table}/{name}" for table, frame in run.tables.items() for name in frame.attrs["added"]]
    return {"not recorded": f"{', '.join(names)}: the file is older"} if names else {}


def _progress(rounds: pd.DataFrame) -> dict[str, str]:
    accuracy, k = rounds["accuracy"].dropna(), rounds["num_sites"]
    phases = ", ".join(
        f"{name} {rounds[f'{name}_wall_s'].sum():.1f}" for name in ("train", "exchange", "evaluate")
    )
    return {
        "rounds": f"{len(rounds)}, {_hours(rounds['clock_s'].iloc[-1])} simulated",
        "accuracy": f"{accuracy.iloc[-1]:.2%} last, {accuracy.max():.2%} best"
        if len(accuracy)
        else "not evaluated",
        **_loss(rounds[["eval_loss", "eval_perplexity"]].dropna()),
        "cohort": f"{k.iloc[0]} sites first, {k.median():g} median, {k.iloc[-1]} last",
        "wall time": f"{rounds['wall_s'].sum():.1f} s: {phases}; "
        f"hosts idle for {rounds['idle_fraction'].mean():.0%} of training",
    }


def _loss(evaluated: pd.DataFrame) -> dict[str, str]:
    if evaluated.empty:
        return {}
    loss, perplexity = evaluated.iloc[-1]
    return {"held-out loss": f"{loss:.4g} last (perplexity {perplexity:.4g})"}


def _target(run: Run, target: float) -> dict[str, str]:
    if math.isnan(target):
        return {}
    reached_s = run.time_to_accuracy_s
    if math.isnan(reached_s):
        return {"time to accuracy": f"{target:.2%} not reached"}
    number = int((run.rounds["clock_s"] < reached_s).sum()) + 1
    return {"time to accuracy": f"{_hours(reached_s)} to {target:.2%}, in round {number}"}


def _machines(meta: Mapping[str, Any]) -> str:
    hosts = f" on {_counted(len(set(meta['hosts'])), 'host')}" if meta["hosts"] else ""
    facts = {
        "transport": meta["transport"],
        "MPI": meta["mpi_library"].partition("\n")[0],
        "engine": ", ".join(filter(None, (meta["engine"], meta["blocks"]))),
        "device": ", ".join(dict.fromkeys(meta["devices"])),
    }
    known = [f"{name} {fact}" for name, fact in facts.items() if fact]
    return ", ".join([_counted(meta["num_ranks"], "rank") + hosts, *known])


def _kind(run: Run, name: str) -> str:
    return str(run.setting(f"{name}.kind", "unknown"))


def _synthetic(is_synthetic: bool) -> str:
    return " (synthetic)" if is_synthetic else ""


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.3f} h"


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")


def export(run: ResultsFile, folder: str | Path) -> list[Path]:
    """Write one CSV a table, and meta.json with the attributes and the resolved input; returns the files.

    Each file is replaced at once or not at all. Texts as in `csv_bytes`; what is not finite is null in JSON.
    """
    contents = {f"{name}.csv": csv_bytes(frame) for name, frame in run.tables.items()}
    meta = {name: _finite(value) for name, value in run.meta.items()}
    contents["meta.json"] = json.dumps({"meta": meta, "input": run.input}, indent=2).encode() + b"\n"
    paths = [Path(folder) / name for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        replace_file(path, content)
    return paths


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
