"""The WAN between the sites and the aggregator: how long transfers take (paper Eqs. 3, 4). Every module of this package
is imported."""

from hpctrip.config.component import import_all
from hpctrip.sim.network.base import NETWORKS, Links, Network, Transfers

__all__ = ["NETWORKS", "Links", "Network", "Transfers"]

import_all(__name__)
