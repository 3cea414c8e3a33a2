"""The hardware of a site: its training speed for a given power, and its power draw."""

from hpctrip.config.component import import_all
from hpctrip.sim.hardware.base import THROUGHPUT_MODELS, Hardware, Throughput

__all__ = ["THROUGHPUT_MODELS", "Hardware", "Throughput"]

import_all(__name__)
