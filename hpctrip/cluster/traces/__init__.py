"""Job traces: readers of published formats and of hpctrip's own format, and a generator."""

from hpctrip.cluster.traces.base import TRACES, Raw, Trace
from hpctrip.config.component import import_all

__all__ = ["TRACES", "Raw", "Trace"]

import_all(__name__)
