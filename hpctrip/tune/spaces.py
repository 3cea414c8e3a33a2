"""Search spaces of `tune`: the values to try for each input key, their combinations, and the GPU's own settings."""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Sequence

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.device.counters import Unavailable
from hpctrip.device.nvml import Gpu
from hpctrip.tune.trial import Keys, TrialRunner

MAX_CANDIDATES = 128
CAP, CLOCK = "knobs.power_cap_w", "knobs.clock_mhz"
"""Input keys of the GPU settings that have many values."""


def read_space(line: str) -> list[Keys]:
    """Parse a line of TOML with several values, as `engine.precision = ["float32", "tf32"]`, into one choice per value.
    Raises InputError."""
    key, _, text = line.partition("=")
    try:
        values = tomllib.loads(f"values ={text}")["values"]
    except ValueError as error:
        raise InputError(
            f"--over {printable(line, 100)}", f"is not valid TOML ({error})", "KEY=[...]"
        ) from None
    if not isinstance(values, list) or not values:
        raise InputError(f"--over {printable(line, 100)}", "is not a list of values", "KEY=[...]")
    return [{key.strip(): value} for value in values]


def default_spaces(runner: TrialRunner) -> list[list[Keys]]:
    """Default search space for this kind of device: a list of dimensions, each a list of choices."""
    batch = runner.experiment({}).train.batch_size or 1
    batches = [{}, *({"train.batch_size": size} for size in (2 * batch, 4 * batch))]
    if runner.device.type == "cuda":
        precisions = [{}, *({"engine.precision": name} for name in ("tf32", "bfloat16"))]
        blocks = [{}, *({"engine.sites_per_block": size} for size in (8, 32, 128))]
        return [precisions, blocks, batches]
    cores = len(os.sched_getaffinity(0))
    threads = [{"ranks.threads": 2**i} for i in range(1, cores.bit_length()) if 2**i <= cores]
    stacked = ({"engine.name": "stacked", "engine.sites_per_block": size} for size in (8, 32))
    return [[{}, *threads], [{}, {"engine.precision": "bfloat16"}], [{}, *stacked], batches]


def candidates(spaces: Sequence[Sequence[Keys]]) -> list[Keys]:
    """Every combination of one choice per dimension, without duplicates; the first is {}, the original input. Raises
    InputError if they are more than MAX_CANDIDATES."""
    number = math.prod(map(len, spaces))
    if number > MAX_CANDIDATES:
        problem = f"{number:,} combinations, the most is {MAX_CANDIDATES}"
        raise InputError("--over", problem, "try fewer values")
    combinations: list[Keys] = [{}]
    for parts in itertools.product(*spaces):
        keys = {key: value for part in parts for key, value in part.items()}
        if keys not in combinations:
            combinations.append(keys)
    return combinations


def gpu_values(key: str, uuid: str) -> np.ndarray:
    """The values of CAP or CLOCK that a GPU accepts, rising, in the unit of the key. Raises Unavailable where it has no
    such setting."""
    gpu = Gpu.of(uuid)
    if key == CLOCK:
        values = np.array(gpu.clocks_mhz)
    else:
        low_mw, high_mw = gpu.cap_range_mw
        values = np.arange(-(-low_mw // 1000), high_mw // 1000 + 1, dtype=float)
    if not len(values):
        raise Unavailable(f"{uuid}: it accepts no other {key}")
    return values
