"""Search spaces of `tune`: the values to try for each input key, and their combinations."""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Sequence
from typing import Any

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.tune.trial import Keys, TrialRunner

MAX_CANDIDATES = 128


def read_space(line: str) -> list[Keys]:
    """Parse a line of TOML with several values, as `engine.precision = ["float32", "tf32"]`, into one choice per value.
    Raises InputError."""
    key, _, text = line.partition("=")
    try:
        values = tomllib.loads(f"values ={text}")["values"]
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"--over {printable(line, 100)}", f"is no TOML ({error})", "KEY=[...]") from None
    if not isinstance(values, list) or not values:
        raise InputError(f"--over {printable(line, 100)}", "is no list of values", "KEY=[...]")
    return [{key.strip(): value} for value in values]


def default_spaces(runner: TrialRunner) -> list[list[Keys]]:
    """Default search space for this kind of device: a list of dimensions, each a list of choices."""
    batch = runner.experiment({}).train.batch_size or 1
    batches = [{}, *({"train.batch_size": size} for size in (2 * batch, 4 * batch))]
    if runner.device.type == "cuda":
        precisions = [{}, *({"engine.precision": name} for name in ("tf32", "bfloat16"))]
        return [precisions, [{}, *map(_block, (8, 32, 128))], batches]
    cores = len(os.sched_getaffinity(0))
    threads = [{"ranks.threads": 2**i} for i in range(1, cores.bit_length()) if 2**i <= cores]
    engines = [{}, {"engine.name": "stacked"} | _block(8), {"engine.name": "stacked"} | _block(32)]
    return [[{}, *threads], [{}, {"engine.precision": "bfloat16"}], engines, batches]


def _block(size: int) -> dict[str, Any]:
    return {"engine.sites_per_block": size}


def candidates(spaces: Sequence[Sequence[Keys]]) -> list[Keys]:
    """Every combination of one choice per dimension, without duplicates; the first is {}, the input as it is. Raises
    InputError if they are more than MAX_CANDIDATES."""
    number = math.prod(len(space) for space in spaces)
    if number > MAX_CANDIDATES:
        raise InputError(
            "--over", f"{number:,} combinations, the most is {MAX_CANDIDATES}", "try fewer values"
        )
    combinations: list[Keys] = [{}]
    for parts in itertools.product(*spaces):
        keys = {key: value for part in parts for key, value in part.items()}
        if keys not in combinations:
            combinations.append(keys)
    return combinations
