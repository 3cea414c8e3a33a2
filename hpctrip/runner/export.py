"""The trained model of a run as files of other libraries."""

from __future__ import annotations

from pathlib import Path

from hpctrip.base.io import check_suffix, write_new
from hpctrip.record.checkpoint import find, named_arrays
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.provenance import RecordedInput


def export_model(source: str, out: str, overwrite: bool = False) -> list[Path]:
    """Write the global model of a run and return the paths. `source` is the results file, whose newest intact
    checkpoint is exported, or one of its checkpoints.

    If `out` ends in .safetensors, the file (it holds no code, and PyTorch, JAX and others read it) has float32 arrays
    by parameter name (the trained ones of a model with frozen parts, such as LoRA; tied ones under every name), and the
    round, clock and input as metadata. If `out` has no suffix, it is a folder with the files that transformers or peft
    write.

    Raises InputError where there is no checkpoint, where it does not name its parameters, where the workload's model
    has no library for a folder, and where a file exists and `overwrite` is false, or cannot be written.
    """
    is_file = bool(Path(out).suffix)
    if is_file:
        check_suffix(out, [".safetensors"])
    checkpoint, place, _ = find(source)
    arrays = named_arrays(checkpoint, place)
    if not is_file:
        tables = RecordedInput.of(place, checkpoint.input_toml, checkpoint.metadata).tables
        files = experiment_of(tables).workload.model_files(arrays)
        return write_new({Path(out, name): content for name, content in files.items()}, overwrite)
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
