"""Files of format version 1 (hpctrip 0.1), under today's names.

Version 1 called two quantities by one name: its `power_fraction`, true or seen, was what the power is worth
(throughput), which is the power itself only under `throughput.kind = "linear"`. It called c_i `compute_s` and L_i
`delay_s` in the table of sites.
"""

from __future__ import annotations

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
