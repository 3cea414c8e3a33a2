"""From what HDF5 holds to plain values and pandas frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
import pandas as pd


def plain(value: Any) -> Any:
    """The value of an attribute: str, int, float, bool or list of str."""
    if isinstance(value, np.ndarray):
        return [text.decode() for text in value.tolist()]
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


def text(dataset: h5py.Dataset) -> str:
    """The one text of a dataset. ValueError where it is none."""
    if dataset.ndim:
        raise ValueError(f"{dataset.name} is no text")
    return dataset.asstr()[()]


def _values(dataset: h5py.Dataset) -> np.ndarray:
    """The values [rows] of a column: numbers in native order, or texts as objects."""
    if dataset.ndim != 1:
        raise ValueError(f"{dataset.name} is no column")
    if dataset.dtype.kind == "S":
        return dataset.asstr()[()]
    values = dataset[()]
    return values.astype(values.dtype.newbyteorder("="))


def frame(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The columns of a group, with `attrs` as `ResultsFile` says; `expected`: what is known of its columns."""
    columns = {name: group[name] for name in group}  # not items(), which gives None for what cannot be read
    made = pd.DataFrame({name: _values(dataset) for name, dataset in columns.items()})
    for key, attribute in (("units", "unit"), ("descriptions", "description")):
        made.attrs[key] = {name: plain(dataset.attrs[attribute]) for name, dataset in columns.items()}
    made.attrs["checksum"] = plain(group.attrs["checksum"])
    added = {name: about for name, about in expected.items() if name not in columns and "default" in about}
    for name, about in added.items():
        made[name] = np.full(len(made), about["default"], dtype=about["dtype"])
        made.attrs["units"][name], made.attrs["descriptions"][name] = about["unit"], about["doc"]
    made.attrs["added"] = list(added)
    return made
