"""Keys by which energy, carbon and cost are counted (bill.py), and budgets of a run ([stop]) and of its sites."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import Grams, Joules, spelled
from hpctrip.config.component import Component
from hpctrip.sim.grid import SignalModel
from hpctrip.sim.quantities import QUANTITIES, Quantity
from hpctrip.sim.rounds import History

MONEY = r"^\d{1,15}(\.\d{1,6})? [A-Z]{3}$"
"""A sum with its currency: "100 EUR"."""


class Budget(NamedTuple):
    """The most that may be spent of energy, carbon or money."""

    key: str
    """Input key with its table, e.g. "stop.max_energy"."""
    quantity: Quantity
    amount: float
    """In the unit of its column."""
    text: str
    """The amount with its unit, e.g. "500 kWh"."""
    currency: str
    """Currency of a sum of money; else empty."""

    def __str__(self) -> str:
        return f"{self.key.partition('.')[2]} = {self.text}"


def budgets(table: str, prefix: str, component: Component) -> list[Budget]:
    """The budgets that an input table sets by its keys `prefix`energy, `prefix`carbon and `prefix`cost."""
    result = []
    for quantity in QUANTITIES:
        value = getattr(component, prefix + quantity.name)
        if value is not None:
            amount, currency = (value, "") if quantity.unit else value.split()
            text = spelled(value, quantity.unit) if quantity.unit else value
            result.append(Budget(f"{table}.{prefix}{quantity.name}", quantity, float(amount), text, currency))
    return result


class Accounts(Component):
    """Rules for counting energy, carbon and cost. Sites draw power by their hardware ([throughput]) while they compute
    and while they wait; sites outside the cohort, and sites with an outage at the start of the round, count
    nothing."""

    waiting: Literal["idle", "released"] = "idle"
    """State of a site after it has sent its update. idle: it waits for the round's end with its GPUs on; released: its
    GPUs serve others until the next round, at no cost to this run."""
    network_j_per_gb: float = Field(13_500.0, ge=0, le=1e12)
    """Network energy in joules for each GB that a site sends or receives. 13.5 kJ = 0.00375 kWh: 0.06 kWh/GB in 2015,
    halved every two years, at 2023 (Aslan et al., J. Industrial Ecology 22(4), 2018, fixed-line internet)."""
    currency: str = Field("EUR", pattern="^[A-Z]{3}$")
    """Currency of [price] and of the recorded costs: a code of ISO 4217."""
    site_max_energy: Joules | None = Field(None, gt=0)
    """Energy that each site may spend in the whole run, e.g. "5 kWh"; a plain number is joules. The round in which a
    site exceeds a budget is finished and counted. Afterwards the site has no power, as in an outage, and every policy
    sees this. The run ends when all sites that would be chosen next have spent a budget."""
    site_max_carbon: Grams | None = Field(None, gt=0)
    """CO2 that each site may emit, e.g. "500 g". Needs [carbon]."""
    site_max_cost: str | None = Field(None, pattern=MONEY)
    """Money that each site may spend: "10 EUR", in the currency of the prices. Needs [price]."""

    @property
    def site_budgets(self) -> list[Budget]:
        """The budgets of each site."""
        return budgets("accounts", "site_max_", self)

    def spent(self, history: History, num_sites: int) -> np.ndarray:
        """The sites that have used up a budget after these rounds, [N] bool."""
        spent = np.zeros(num_sites, dtype=bool)
        for budget in self.site_budgets:
            spent |= history.total_by_site(budget.quantity.column, num_sites) >= budget.amount
        return spent

    def check(
        self,
        signals: Mapping[str, SignalModel],
        run_budgets: Iterable[Budget] = (),
        site_columns: Collection[str] = (),
    ) -> None:
        """InputError where a budget, of the run or of a site, is in another currency than the prices, or needs one of
        the grid signals {input table: signal} that is neither set nor a column of the sites."""
        for budget in (*run_budgets, *self.site_budgets):
            table = budget.quantity.signal
            if table and signals[table].kind == "none" and budget.quantity.per_kwh not in site_columns:
                raise InputError(
                    budget.key, f"needs the signal [{table}]", f"set {table}.kind, e.g. constant"
                )
            if budget.currency not in ("", self.currency):
                raise InputError(
                    f"{budget.key} = {budget.text!r}",
                    f"costs are in {self.currency} (accounts.currency)",
                    f"give the budget in that currency, or accounts.currency = {budget.currency!r} with prices in it",
                )
