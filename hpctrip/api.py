"""The names that plug-ins import: registries, the contracts of components, and the values that pass through them.

    from hpctrip.api import POLICIES, Decision, Policy

Each name is imported from its module when it is first used, so a policy loads neither torch nor MPI. The modules may
move between releases, these names do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpctrip.base.errors import InputError
    from hpctrip.base.rng import stream
    from hpctrip.base.series import Signal
    from hpctrip.base.units import BitsPerSecond, Bytes, Grams, Joules, Metres, Seconds, Watts
    from hpctrip.cluster.budgets import BUDGETS, Budget, Limit
    from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Move, Placement
    from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
    from hpctrip.learn.compression import COMPRESSIONS, Compression
    from hpctrip.learn.partition import PARTITIONS, Partition
    from hpctrip.learn.server import SERVERS, Server
    from hpctrip.learn.task import Dataset, Task
    from hpctrip.learn.workloads.base import WORKLOADS, Workload
    from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts
    from hpctrip.sim.calendar import Calendar
    from hpctrip.sim.forecast import FORECASTS, Forecast, Observations
    from hpctrip.sim.grid.signals import SIGNALS, GridSignal, SignalModel
    from hpctrip.sim.hardware.base import THROUGHPUT_MODELS, Throughput
    from hpctrip.sim.objectives import OBJECTIVES, CostAware, Objective
    from hpctrip.sim.policies.base import POLICIES, Decision, Policy
    from hpctrip.sim.policies.count import DynamicCount
    from hpctrip.sim.policies.powertrip import PowerToCost
    from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply, SteadySupply
    from hpctrip.sim.rounds import History, RoundRow
    from hpctrip.sim.sites import SITES, SitePlacement
    from hpctrip.sim.view import SiteView

_MODULES = {
    "base.errors": ("InputError",),
    "base.rng": ("stream",),
    "base.series": ("Signal",),
    "base.units": ("BitsPerSecond", "Bytes", "Grams", "Joules", "Metres", "Seconds", "Watts"),
    "cluster.budgets": ("BUDGETS", "Budget", "Limit"),
    "cluster.placement.base": ("PLACEMENTS", "Layout", "Move", "Placement"),
    "cluster.schedulers.base": ("SCHEDULERS", "Scheduler"),
    "learn.compression": ("COMPRESSIONS", "Compression"),
    "learn.partition": ("PARTITIONS", "Partition"),
    "learn.server": ("SERVERS", "Server"),
    "learn.task": ("Dataset", "Task"),
    "learn.workloads.base": ("WORKLOADS", "Workload"),
    "runner.callbacks.base": ("CALLBACKS", "Callback", "RunFacts"),
    "sim.calendar": ("Calendar",),
    "sim.forecast": ("FORECASTS", "Forecast", "Observations"),
    "sim.grid.signals": ("SIGNALS", "GridSignal", "SignalModel"),
    "sim.hardware.base": ("THROUGHPUT_MODELS", "Throughput"),
    "sim.objectives": ("OBJECTIVES", "CostAware", "Objective"),
    "sim.policies.base": ("POLICIES", "Decision", "Policy"),
    "sim.policies.count": ("DynamicCount",),
    "sim.policies.powertrip": ("PowerToCost",),
    "sim.power": ("POWER_MODELS", "PowerModel", "PowerSupply", "SteadySupply"),
    "sim.rounds": ("History", "RoundRow"),
    "sim.sites": ("SITES", "SitePlacement"),
    "sim.view": ("SiteView",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """The name, imported from its module."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"hpctrip.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
