"""PowerTrip: train real models over virtual, power-limited datacenter sites and tell how long it took.

    import hpctrip

    run = hpctrip.run("inputs/emnist_static.toml", {"policy.k": 50})   # as the command `hpctrip run` does
    run = hpctrip.open("results/first.h5")
    run.rounds, run.sites, run.meta                             # pandas frames and attributes
    hpctrip.plot("curves", [run])
    hpctrip.study(sweeps={"policy.k": [5, 10], "seed": range(3)})   # a pandas frame, a row for each run
    hpctrip.simulate("inputs/cluster/powerflow.toml").jobs      # one GPU cluster, as `hpctrip cluster` does

Importing the package starts neither MPI nor CUDA, and loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpctrip.base.errors import DivergedError, HpctripError, InputError, InterruptedRun

if TYPE_CHECKING:
    from hpctrip.library import Cluster, Run, open, plot, resume, run, simulate, study

__version__ = "0.4.0"

__all__ = [
    "Cluster",
    "DivergedError",
    "HpctripError",
    "InputError",
    "InterruptedRun",
    "Run",
    "open",
    "plot",
    "resume",
    "run",
    "simulate",
    "study",
]


def __getattr__(name: str) -> Any:
    """The library, loaded where it is first used."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("hpctrip.library"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
