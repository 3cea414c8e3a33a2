"""The trained model as a folder that its own library loads."""

from __future__ import annotations

from pathlib import Path

from hpctrip.base.io import check_writable, replace_file
from hpctrip.record.checkpoint import find, named_arrays
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.provenance import RecordedInput


def export_folder(source: str, folder: str, overwrite: bool = False) -> list[Path]:
    """Write the global model of a run into `folder` as transformers or peft write it, and return the paths. `source` is
    as in `export_model`. Raises InputError as that, and where the workload's model has no library."""
    checkpoint, place, _ = find(source)
    recorded = RecordedInput.of(place, checkpoint.input_toml, checkpoint.metadata)
    workload = experiment_of(recorded.tables).workload
    contents = workload.model_files(named_arrays(checkpoint, place))
    paths = {Path(folder, name): content for name, content in contents.items()}
    for path in paths:
        check_writable(path, overwrite)
    for path, content in paths.items():
        replace_file(path, content)
    return [*paths]
