"""Files of older versions, in today's words.

Resolved inputs once held None where a default followed from other keys: see `in_force`.

Files of format version 1 (hpctrip 0.1) have other names. Version 1 called two quantities by one name: its
`power_fraction`, true or seen, was what the power is worth (throughput), which is the power itself only under
`throughput.kind = "linear"`. It called c_i `compute_s` and L_i `delay_s` in the table of sites.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

RENAMED = {
    "sites": {"compute_s": "work_s", "delay_s": "comm_s", "power_fraction": "throughput_fraction"},
    "rounds_sites": {"power_fraction": "throughput_fraction"},
}
"""{table: {name in version 1: name today}}."""

SEEN = {"seen_power_fraction": "seen_throughput_fraction"}
"""Renamed too where throughput is not linear; where it is, the column is what its name says."""

WORK = {
    "emnist": {"lr": 0.01, "batch_size": 20, "optimizer": "sgd", "weight_decay": 0.0},
    "femnist": {"lr": 0.01, "batch_size": 20, "optimizer": "sgd", "weight_decay": 0.0},
    "shakespeare": {"lr": 0.8, "batch_size": 20, "optimizer": "sgd", "weight_decay": 0.0},
    "speech": {"lr": 0.001, "batch_size": 16, "optimizer": "adamw", "weight_decay": 0.1},
    "llm": {"lr": 0.001, "batch_size": 8, "optimizer": "adamw", "weight_decay": 0.0},
}
"""What [train] meant where it was silent, by workload. It stays as it is whatever the workloads' own become."""


def in_force(settings: dict[str, Any]) -> dict[str, Any]:
    """An input {dotted key: value} with the values that were in force where an older file says None or nothing. Of
    workloads that are not ours nothing is known; there it stays None."""
    if settings.get("policy.kind") == "goodput":
        # It was added later, and its default is not what was done before.
        settings = {"policy.weigh_work": False} | settings
    kind = settings.get("workload.kind")
    if not isinstance(kind, str) or kind not in WORK:
        return settings
    meant = {f"train.{key}": value for key, value in WORK[kind].items()} | {"engine.sites_per_block": "auto"}
    if settings.get("train.local_steps") is None:
        meant["train.local_epochs"] = 1.0
    if kind == "emnist" and settings.get("workload.data") == "glyphs":
        meant |= {"workload.train_samples": 60_000, "workload.test_samples": 10_000}
    if kind == "shakespeare":
        meant["workload.stride"] = 1 if settings.get("workload.predict") == "last" else 80
    if settings.get("throughput.kind") == "gpus":
        factors = [settings.get(f"throughput.{key}") for key in ("num_gpus", "gpu_power_w", "pue")]
        if all(isinstance(factor, int | float) for factor in factors):
            meant["throughput.site_power_w"] = math.prod(factors)
    return settings | {key: value for key, value in meant.items() if settings.get(key) is None}


def modernised(table: str, frame: pd.DataFrame, resolved: dict[str, Any]) -> pd.DataFrame:
    """A frame of a version 1 file with today's column names, and the power fraction where it is known (else NaN).

    `attrs["stored"]` {name today: name in the file} keeps what checksums are made of; what was filled in is in
    `attrs["added"]`.
    """
    throughput = resolved.get("throughput")
    linear = not isinstance(throughput, dict) or throughput.get("kind", "linear") == "linear"
    renamed = RENAMED.get(table, {}) | ({} if linear else SEEN)
    names = {old: new for old, new in renamed.items() if old in frame}
    if doubled := set(names.values()) & set(frame):
        raise ValueError(f"/{table} has {', '.join(sorted(doubled))} under two names")
    attrs = frame.attrs
    frame = frame.rename(columns=names)
    for key in ("units", "descriptions"):
        attrs[key] = {names.get(name, name): text for name, text in attrs[key].items()}
    attrs["stored"] = {new: old for old, new in names.items()}
    for name in ("power_fraction", "seen_power_fraction"):
        if name in names:
            frame[name] = frame[names[name]].to_numpy() if linear else np.full(len(frame), np.nan)
            attrs["units"][name] = "1"
            attrs["descriptions"][name] = "power fraction P_i at the round's start, where it is known"
            attrs["added"] = [*attrs["added"], name]
    frame.attrs = attrs
    return frame
