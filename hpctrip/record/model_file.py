"""Exports the trained model as a safetensors file, which holds no code and is read by PyTorch, JAX and others."""

from __future__ import annotations

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
        "round": str(checkpoint.state.round),
        "clock_s": repr(checkpoint.state.clock_s),
        "input_toml": checkpoint.input_toml,
        "made_by": f"hpctrip, {Path(source).name}",
    }
    replace_file(out, save(arrays, metadata))
    return Path(out)


def _arrays(checkpoint: Checkpoint, place: str) -> dict[str, np.ndarray]:
    """{name: array} of the parameters of a checkpoint."""
    texts, params = checkpoint.metadata.get("parameters"), checkpoint.model.params
    if texts is None:
        raise InputError(
            place, "does not name its parameters: an older hpctrip wrote it", "resume it for a round"
        )
    names, sizes = zip(*(text.partition(" ")[::2] for text in texts), strict=True)
    shapes = [[int(size) for size in text.split("x") if size] for text in sizes]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    parts = np.split(params, ends[:-1])
    return {name: part.reshape(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
