"""What the whole cluster may draw, whoever schedules it: hard limits that the simulator keeps."""

from hpctrip.cluster.budgets.base import BUDGETS, Budget, Limit
from hpctrip.config.component import import_all

__all__ = ["BUDGETS", "Budget", "Limit"]

import_all(__name__)
