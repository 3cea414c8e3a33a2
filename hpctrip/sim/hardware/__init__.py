"""The hardware of a site: what its power is worth in training speed, and what it draws."""

from hpctrip.config.component import import_all
from hpctrip.sim.hardware.base import THROUGHPUT_MODELS, Throughput

__all__ = ["THROUGHPUT_MODELS", "Throughput"]

import_all(__name__)
