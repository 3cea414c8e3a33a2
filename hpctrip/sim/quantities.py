"""The quantities that a run spends: energy, carbon and money. Predictions, bills, budgets and objectives share them.

`bill` (bill.py) charges them, `prefix_spending` (timing.py) predicts them. A new one is declared here; what else it
needs is in DESIGN.md, "Where to add what". Shapes: N sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpctrip.base.units import J_PER_KWH
from hpctrip.sim.view import SiteView


@dataclass(frozen=True)
class Quantity:
    """Something that a run spends, of which there is an amount for each joule."""

    name: str
    """In input keys, such as `stop.max_energy`."""
    column: str
    """Its column in the results."""
    unit: str
    """Unit of the column, as in `base.units`; empty: the currency of the input."""
    total: str
    """Its column in the tables of whole runs and sites: a study's, and the report by site."""
    total_unit: float
    """Unit of that column, in the unit of `column`."""
    signal: str = ""
    """Input table of the grid signal that gives its amount for a kilowatt-hour; empty: it is the energy itself."""
    per_kwh: str = ""
    """Field of `SiteView` with the values of this signal."""
    lowest_per_kwh: float = 0.0
    """Smallest value of this signal."""

    def per_joule(self, sites: SiteView) -> np.ndarray:
        """Its amount for a joule at every site, as seen, [N]; NaN where it is not known."""
        if not self.signal:
            return np.ones(len(sites))
        return np.broadcast_to(getattr(sites, self.per_kwh), len(sites)) / J_PER_KWH


ENERGY = Quantity("energy", "energy_j", "joules", "energy_kwh", J_PER_KWH)
CARBON = Quantity("carbon", "carbon_g", "grams", "carbon_kg", 1e3, "carbon", "g_per_kwh")
# prices of electricity fall below 0
COST = Quantity("cost", "cost", "", "cost", 1.0, "price", "cost_per_kwh", -1e6)
QUANTITIES = (ENERGY, CARBON, COST)
BY_SIGNAL = {quantity.signal: quantity for quantity in QUANTITIES if quantity.signal}
"""{input table of the grid signal: its quantity}."""
ACTIVITIES = ("compute_energy_j", "wait_energy_j", "comm_energy_j")
"""Columns of the results that are parts of the energy."""
SPENT = (*ACTIVITIES, *(quantity.column for quantity in BY_SIGNAL.values()))
"""Columns of the results that a round's bill fills, for each site and in total."""
