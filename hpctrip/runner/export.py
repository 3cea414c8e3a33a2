"""The trained model of a run as files of other libraries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_suffix, write_new
from hpctrip.config.plugins import Extensions
from hpctrip.record.checkpoint import find, named_arrays
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.provenance import RecordedInput


def _constants(recorded: RecordedInput, plugins: list[str], digest: str) -> dict[str, np.ndarray]:
    """The state of a new model of a run, by name, from the user's code. Raises InputError where this is not named, or
    where its frozen parameters and constants have not this digest."""
    from hpctrip.learn.first_model import new_model  # heavy: torch

    if not plugins:
        problem = "is of a model with frozen parameters or constants, which no checkpoint holds"
        raise InputError(recorded.place, problem, "name the code that builds them, e.g. --plugin PATH")
    experiment = recorded.overlaid([], Extensions.of(plugins)).experiment
    state, found = new_model(experiment)
    if found != digest:
        problem = "gives other frozen parameters or constants than those of the run"
        raise InputError(experiment.workload.model_place, problem, "give it the same files")
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in state.items()}


def export_model(source: str, out: str, overwrite: bool = False, plugins: Iterable[str] = ()) -> list[Path]:
    """Write the global model of a run and return the paths. `source` is the results file, whose newest intact
    checkpoint is exported, or one of its checkpoints.

    If `out` ends in .safetensors, the file (it holds no code, and PyTorch, JAX and others read it) has float32 arrays
    by parameter name (the trained ones of hpctrip's own models with frozen parts, such as LoRA; all of a user's model,
    whose code `plugins` name; tied ones under every name), and the round, clock and input as metadata. If `out` has no
    suffix, it is a folder with the files that transformers or peft write.

    Raises InputError where there is no checkpoint, where it does not name its parameters, where the workload's model
    has no library for a folder, and where a file exists and `overwrite` is false, or cannot be written.
    """
    is_file = bool(Path(out).suffix)
    if is_file:
        check_suffix(out, [".safetensors"])
    checkpoint, place, _ = find(source)
    arrays = named_arrays(checkpoint, place)
    recorded = RecordedInput.of(place, checkpoint.input_toml, checkpoint.metadata)
    if not is_file:
        files = experiment_of(recorded.tables).workload.model_files(arrays)
        return write_new({Path(out, name): content for name, content in files.items()}, overwrite)
    if digest := checkpoint.metadata.get("constants"):
        arrays = _constants(recorded, [*plugins], digest) | arrays
    from safetensors.numpy import save

    arrays |= {name: arrays[other] for name, other in checkpoint.metadata.get("tied", {}).items()}
    metadata = {
        "format": "pt",
        "round": str(checkpoint.state.round),
        "clock_s": repr(checkpoint.state.clock_s),
        "input_toml": checkpoint.input_toml,
        "made_by": f"hpctrip, {Path(source).name}",
    }
    return write_new({Path(out): save(arrays, metadata)}, overwrite)
