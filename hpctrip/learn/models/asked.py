"""What a model's configuration may ask for: a stranger's file of a few lines does not fill the memory.

Its numbers are bounded where they count parts, and a model is built only as far as the weights beside it can fill it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file

MOST_PARTS = 10_000
"""Layers, heads, experts or labels: of each, the largest models have hundreds."""
TIMES_STORED = 4
"""A model may have so many times the numbers that its weights hold: a layer that two names share counts twice while it
is built, and one that is put into 4 bits is built twice."""
_FREE_BUFFERS = 2**28
"""Numbers in tables that are made and not stored, such as masks."""


def check_config(path: Path) -> None:
    """Raise InputError where a config.json counts more than MOST_PARTS of anything: lists of that length are made of
    it before anything is built."""
    try:
        config = json.loads(read_file(path, "workload.model"))
        asked = next((pair for pair in _counts(config) if pair[1] > MOST_PARTS), None)
    except (ValueError, RecursionError):
        return  # transformers says what is wrong with it
    if asked:
        problem = f"{path} says {asked[0]} = {asked[1]:.6g}, at most {MOST_PARTS:,} are taken"
        raise InputError("workload.model", problem, "copy the directory again")


def _counts(config: Any) -> Iterator[tuple[str, float]]:
    """(key, number) of every key that counts parts, also of configurations inside."""
    if isinstance(config, list):
        for item in config:
            yield from _counts(item)
    if isinstance(config, dict):
        for key, value in config.items():
            if isinstance(value, int | float) and ("layer" in key or key.startswith(("num_", "n_head"))):
                yield key, value
            yield from _counts(value)


@contextmanager
def no_more_than_stored(weights: Iterable[Path]) -> Iterator[None]:
    """While the body builds a model, its parts are counted before anything is written into them: ValueError where they
    hold more than TIMES_STORED times the numbers of these safetensors files."""
    stored = sum(map(_numbers, weights))
    found: dict[tuple[int, str], int] = {}
    sums = {"parameters": 0, "buffers": 0}
    most = {"parameters": TIMES_STORED * stored, "buffers": max(TIMES_STORED * stored, _FREE_BUFFERS)}

    def count(what: str, module: torch.nn.Module, name: str, tensor: torch.Tensor | None) -> None:
        if tensor is None:
            return
        size, place = max(tensor.numel(), 1), (id(module), name)
        sums[what] += size - found.get(place, 0)  # the loader registers each again, with its values
        found[place] = size
        if sums[what] > most[what]:
            raise ValueError(
                f"its config.json asks for more {what} than {TIMES_STORED} times the {stored:,} stored"
            )

    hooks = [
        register_module_parameter_registration_hook(lambda *part: count("parameters", *part)),
        register_module_buffer_registration_hook(lambda *part: count("buffers", *part)),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _numbers(path: Path) -> int:
    """How many numbers a safetensors file says to hold; its size bounds them. A byte may be two numbers of 4 bits."""
    with safe_open(path, framework="pt") as file:
        parts = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118  it is no mapping
        return sum(
            math.prod(part.get_shape()) * (2 if part.get_dtype() in ("U8", "I8") else 1) for part in parts
        )
