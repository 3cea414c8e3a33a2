"""Availability of sites: when they may train, and how long they wait until they start. Every module of this package is
imported."""

from hpctrip.config.component import import_all
from hpctrip.sim.availability.base import AVAILABILITY, Availability, AvailabilityModel, Surroundings

__all__ = ["AVAILABILITY", "Availability", "AvailabilityModel", "Surroundings"]

import_all(__name__)
