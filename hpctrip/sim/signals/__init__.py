"""Signals of the grid at every site over time: grams of CO2, or money, for a kilowatt-hour. Each kind in a file of this
folder."""

from hpctrip.base.component import import_all
from hpctrip.sim.signals.base import SIGNALS, GridSignal, SignalModel

__all__ = ["SIGNALS", "GridSignal", "SignalModel"]

import_all(__name__)
