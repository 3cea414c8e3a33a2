"""The hardware of a site: what its power is worth in training speed, and what it draws. Each kind in a file of this
folder."""

from hpctrip.base.component import import_all
from hpctrip.sim.throughput.base import THROUGHPUT_MODELS, Throughput

__all__ = ["THROUGHPUT_MODELS", "Throughput"]

import_all(__name__)
