"""Where jobs come from: a reader for each published format, one of our own, and a generator. One file each."""

from hpctrip.cluster.traces.base import TRACES, Raw, Trace
from hpctrip.config.component import import_all

__all__ = ["TRACES", "Raw", "Trace"]

import_all(__name__)
