"""The names that plug-ins import: registries, the contracts of components, and the values that pass through them.

    from hpctrip.api import POLICIES, Decision, Policy

Importing them loads neither torch nor MPI. The modules may move between releases, these names do not.
"""

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.series import Signal
from hpctrip.base.units import BitsPerSecond, Bytes, Grams, Joules, Metres, Seconds, Watts
from hpctrip.cluster.budgets import BUDGETS, Budget, Limit
from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Move, Placement
from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.learn.compression import COMPRESSIONS, Compression
from hpctrip.learn.partition import PARTITIONS, Partition
from hpctrip.learn.server import SERVERS, Server, elementwise
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, Workload
from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts
from hpctrip.sim.arrivals import ROUNDS, Events, Rounds
from hpctrip.sim.availability import AVAILABILITY, Availability, AvailabilityModel, Surroundings
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.forecast import FORECASTS, Forecast, Observations
from hpctrip.sim.grid.signals import SIGNALS, GridSignal, SignalModel
from hpctrip.sim.hardware.base import THROUGHPUT_MODELS, Throughput
from hpctrip.sim.network import NETWORKS, Links, Network, Transfers
from hpctrip.sim.objectives import OBJECTIVES, CostAware, Objective
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.policies.count import DynamicCount
from hpctrip.sim.policies.powertrip import PowerToCost
from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply, SteadySupply
from hpctrip.sim.rounds import History, RoundRow
from hpctrip.sim.sites import SITES, SitePlacement
from hpctrip.sim.view import SiteView

__all__ = ["InputError", "Signal", "stream"]
__all__ += ["BitsPerSecond", "Bytes", "Grams", "Joules", "Metres", "Seconds", "Watts"]
__all__ += ["SITES", "SitePlacement", "SiteView"]
__all__ += ["NETWORKS", "Links", "Network", "Transfers"]
__all__ += ["POWER_MODELS", "PowerModel", "PowerSupply", "SteadySupply"]
__all__ += ["AVAILABILITY", "Availability", "AvailabilityModel", "Surroundings"]
__all__ += ["THROUGHPUT_MODELS", "Throughput"]
__all__ += ["SIGNALS", "Calendar", "GridSignal", "SignalModel"]
__all__ += ["FORECASTS", "Forecast", "Observations"]
__all__ += ["OBJECTIVES", "CostAware", "Objective"]
__all__ += ["POLICIES", "Decision", "DynamicCount", "History", "Policy", "PowerToCost"]
__all__ += ["ROUNDS", "Events", "Rounds"]
__all__ += ["WORKLOADS", "Dataset", "Task", "Workload"]
__all__ += ["COMPRESSIONS", "PARTITIONS", "SERVERS", "Compression", "Partition", "Server", "elementwise"]
__all__ += ["CALLBACKS", "Callback", "RoundRow", "RunFacts"]
__all__ += ["BUDGETS", "Budget", "Limit"]
__all__ += ["PLACEMENTS", "Layout", "Move", "Placement"]
__all__ += ["SCHEDULERS", "Scheduler"]
