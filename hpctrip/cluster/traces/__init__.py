"""Job traces: readers of published formats and of hpctrip's own format, and a generator."""

from hpctrip.cluster.traces.base import TRACES, Jobs, Raw, Trace, TraceFile
from hpctrip.config.component import import_all

__all__ = ["TRACES", "Jobs", "Raw", "Trace", "TraceFile"]

import_all(__name__)
