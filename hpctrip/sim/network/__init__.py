"""The WAN between the sites and the aggregator. Every module of this package is imported."""

from hpctrip.config.component import import_all
from hpctrip.sim.network.base import NETWORKS, Links, Network, Transfers
from hpctrip.sim.network.distance import DistanceNetwork

__all__ = ["NETWORKS", "DistanceNetwork", "Links", "Network", "Transfers"]

import_all(__name__)
