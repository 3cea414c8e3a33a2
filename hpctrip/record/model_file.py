"""Exports the trained model as a safetensors file, which holds no code and is read by PyTorch, JAX and others."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_suffix, check_writable, replace_file
from hpctrip.record.checkpoint import SUFFIXES, Checkpoint, newest, read


def export_model(source: str, out: str, overwrite: bool = False) -> Path:
    """Write the global model of a run to `out` and return its path.

    The file holds float32 arrays by parameter name (the trained ones of a model with frozen parts, such as LoRA), and
    the round, clock and input as metadata. `source` is the results file, whose newest intact checkpoint is exported, or
    one of its checkpoints. Raises InputError where there is no checkpoint, where it does not name its parameters, and
    where `out` exists and `overwrite` is false, or cannot be written.
    """
    check_suffix(out, [".safetensors"])
    check_writable(out, overwrite)
    place: str | Path | None = source
    if Path(source).suffix in SUFFIXES:
        checkpoint: Checkpoint | None = read(source)
    else:
        checkpoint, place, _ = newest(source)
    if checkpoint is None:
        looked = " and ".join(SUFFIXES)
        raise InputError(
            source, "has no checkpoint beside it, which is where the model is", f"looked for {looked}"
        )
    arrays = _arrays(checkpoint, str(place))
    metadata = {
        "format": "pt",
        "round": str(checkpoint.round),
        "clock_s": repr(checkpoint.clock_s),
        "input_toml": checkpoint.input_toml,
        "made_by": f"hpctrip, {Path(source).name}",
    }
    replace_file(out, save(arrays, metadata))
    return Path(out)


def _arrays(checkpoint: Checkpoint, place: str) -> dict[str, np.ndarray]:
    """{name: array} of the parameters of a checkpoint. Raises InputError where names and sizes do not match."""
    texts, params = checkpoint.metadata.get("parameters"), checkpoint.params
    if not isinstance(texts, list):
        raise InputError(
            place, "does not name its parameters: an older hpctrip wrote it", "resume it for a round"
        )
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for text in texts:
        name, _, sizes = text.partition(" ")
        shape = [int(size) for size in sizes.split("x")] if sizes else []
        begin, start = start, start + math.prod(shape)
        if start > len(params):
            break
        arrays[name] = params[begin:start].reshape(shape)
    if start != len(params) or len(arrays) != len(texts):
        raise InputError(place, f"names other parameters than the {len(params)} it has", "restore a copy")
    return arrays
