"""Signals of the grid at every site over time: grams of CO2, or money, for a kilowatt-hour."""

from hpctrip.config.component import import_all
from hpctrip.sim.grid.signals import SIGNALS, GridSignal, SignalModel

__all__ = ["SIGNALS", "GridSignal", "SignalModel"]

import_all(__name__)
