"""JSON for other programs: strict, so that every reader takes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def json_text(value: Any) -> str:
    """A value of mappings, lists, texts, numbers and numpy's arrays as JSON text. Python's "NaN" and "Infinity" are no
    JSON: what is not finite becomes null. Characters beyond ASCII are escaped, so it is fit for a terminal."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
