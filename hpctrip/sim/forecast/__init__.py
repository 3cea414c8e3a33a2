"""Forecasts: what a site's power will be over the coming round. Each in a file of this folder, imported whole."""

from hpctrip.base.component import import_all
from hpctrip.sim.forecast.base import FORECASTS, Forecast, Past

__all__ = ["FORECASTS", "Forecast", "Past"]

import_all(__name__)
