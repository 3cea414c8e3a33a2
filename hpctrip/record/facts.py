"""What is asked of a finished or running run, as plain values: `show` says them in words and as JSON."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.record.reader import Run

_AS_RECORDED = (
    *(
        "status",
        "stop_reason",
        "scenario",
        "label",
        "seed",
        "data_source",
        "synthetic_data",
        "synthetic_power",
        "synthetic_signals",
    ),
    *("target_accuracy", "num_ranks", "transport", "mpi_library", "engine", "blocks", "params_digest"),
    "stored_rounds",
    *("hpctrip_version", "git_commit", "git_dirty", "created_utc", "updated_utc"),
)


def facts(run: Run) -> dict[str, Any]:
    """{name: value}, units in the names (_s, _fraction); NaN: not known, or there is none. Raises InputError where the
    file lacks columns."""
    if faults := run.schema_faults():
        raise InputError(faults=faults)
    settings = run.settings
    train = {key.removeprefix("train."): v for key, v in settings.items() if key.startswith("train.")}
    return {
        "path": str(run.path),
        **{name: run.meta[name] for name in _AS_RECORDED},
        **{name: str(run.setting(f"{name}.kind", "unknown")) for name in ("policy", "workload", "power")},
        "local_training": train,
        "currency": str(run.setting("accounts.currency", "")),
        "num_sites": len(run.sites),
        **_of_rounds(run.rounds),
        "time_to_accuracy_s": run.time_to_accuracy_s,
        "time_to_accuracy_round": _round_at(run.rounds, run.time_to_accuracy_s),
        "hosts": list(dict.fromkeys(run.meta["hosts"])),
        "devices": list(dict.fromkeys(run.meta["devices"])),
        "meters": run.meta["meters"],
        "not_recorded": [
            f"{name}/{c}"
            for name, frame in run.tables.items()
            for c in frame.attrs["added"]
            if "is_counted" not in run.columns.get(name, {}).get(c, {})
        ],
    }


def _of_rounds(rounds: pd.DataFrame) -> dict[str, Any]:
    accuracy, k = rounds["accuracy"].dropna(), rounds["num_sites"]
    evaluated = rounds[["eval_loss", "eval_perplexity"]].dropna()
    return {
        "num_rounds": len(rounds),
        "clock_s": _last(rounds["clock_s"]),
        "last_accuracy": _last(accuracy),
        "best_accuracy": float(accuracy.max()),
        "last_eval_loss": _last(evaluated["eval_loss"]),
        "last_eval_perplexity": _last(evaluated["eval_perplexity"]),
        "first_num_sites": _last(k.iloc[:1]),
        "median_num_sites": float(k.median()),
        "last_num_sites": _last(k),
        "wall_s": float(rounds["wall_s"].sum()),
        **{f"{name}_wall_s": float(rounds[f"{name}_wall_s"].sum()) for name in PHASES},
        "mean_idle_fraction": float(rounds["idle_fraction"].mean()),
        # not known of one round: not known of all
        **{name: float(rounds[name].sum(skipna=False)) for name in SPENT},
        **_measured(rounds),
    }


def _measured(rounds: pd.DataFrame) -> dict[str, float]:
    """The measured energy of the rounds that have it; NaN: none has."""
    measured = rounds[rounds["wall_j"].notna()]
    joules = {f"{name}wall_j": float(measured[f"{name}wall_j"].sum(min_count=1)) for name in ("", *_DRAWN)}
    samples = float(measured["num_samples"].sum())
    wall_s = float(measured["wall_s"].sum())
    return joules | {
        "num_measured_rounds": len(measured),
        "samples_per_wall_j": samples / joules["wall_j"] if joules["wall_j"] > 0 else math.nan,
        "mean_wall_w": joules["wall_j"] / wall_s if wall_s > 0 else math.nan,
    }


SPENT = ("energy_j", "compute_energy_j", "wait_energy_j", "comm_energy_j", "carbon_g", "cost")
"""Simulated, over all rounds."""
PHASES = ("train", "exchange", "evaluate")
"""Of a round's wall time, those that are told."""
_DRAWN = ("train_", "exchange_", "evaluate_", "record_")


def _last(values: pd.Series) -> Any:
    """As a number of Python's; NaN where there is none."""
    return values.iloc[-1].item() if len(values) else math.nan


def _round_at(rounds: pd.DataFrame, clock_s: float) -> float:
    """The number of the round that ends at this time; NaN where that is not known."""
    return math.nan if math.isnan(clock_s) else int((rounds["clock_s"] < clock_s).sum()) + 1
