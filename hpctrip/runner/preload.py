"""Loads what every run needs, in a process from which runs are forked."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "hpctrip.cli.main",
    "hpctrip.learn.models.cnn",
    "hpctrip.runner.progress",
    "hpctrip.runner.resume",
    "hpctrip.runner.session",
    "numpy.ma",
)
"""Modules that nearly every run imports. None of them starts MPI or CUDA."""


def preload() -> None:
    """Import `MODULES`, and build the schema by which inputs are validated."""
    for name in MODULES:
        import_module(name)
    from hpctrip.runner.experiment import demonstration, experiment_of

    experiment_of(demonstration())
