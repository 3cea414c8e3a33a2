"""`hpctrip plan --bandwidth`: the bandwidth that a compute utilisation needs, and the utilisation that links give.

The numbers are analytic. An exchange is a ring all-reduce, and costs only as much of its time as does not overlap with
computing. Every step takes the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.text import aligned
from hpctrip.base.units import Seconds, figures
from hpctrip.config.component import Component
from hpctrip.config.inputs import merge, validate
from hpctrip.plan.plan import Plan

UTILISATIONS = (0.5, 0.8, 0.9, 0.95, 0.99)
MOST_ROWS = 1_000


class Recipe(Component):
    """Training by sites that exchange updates now and then."""

    num_params: float = Field(gt=0, le=1e15)
    """N: parameters of the model."""
    step_s: Seconds = Field(gt=0)
    """Time of a step."""
    local_steps: int = Field(ge=1, le=10**9)
    """H: steps between two exchanges of a parameter; 1: data-parallel."""
    bits: float = Field(gt=0, le=1e3)
    """b: bits that the update of a parameter takes on the way."""
    num_sites: int = Field(ge=1, le=10**7)
    """R: sites that exchange."""
    fragments: int = Field(1, ge=1, le=10**6)
    """P: parts of the model, which are exchanged in turn, one every H / P steps."""
    overlap_steps: float = Field(0.0, ge=0, le=1e9)
    """Steps that go on during an exchange: tau, or the part of a step that is its backward pass."""
    latency_s: Seconds = Field(0.0, ge=0)
    """Latency of an exchange."""

    @property
    def interval_s(self) -> float:
        """Computing time between two exchanges."""
        return self.local_steps * self.step_s / self.fragments

    @property
    def sent_bits(self) -> float:
        """2 (1 - 1/R) N b / P: bits that each site sends, and receives, in one exchange."""
        return 2 * (1 - 1 / self.num_sites) * self.num_params * self.bits / self.fragments

    @property
    def hidden_s(self) -> float:
        """Seconds of an exchange that cost nothing; it is over before the next one begins."""
        return min(self.overlap_steps * self.step_s, self.interval_s)

    def needed_bps(self, utilisation: float) -> float:
        """The slowest links with which sites compute this share of the time; inf: the latency alone is too long."""
        travels_s = self.interval_s * (1 / utilisation - 1) + self.hidden_s - self.latency_s
        return self.sent_bits / travels_s if travels_s > 0 else math.inf

    def utilisation(self, exchange_s: float) -> float:
        """The share of the time in which sites compute if an exchange takes so long."""
        return self.interval_s / (self.interval_s + max(0.0, exchange_s - self.hidden_s))


REQUIRED = frozenset(name for name, field in Recipe.model_fields.items() if field.is_required())
"""Values that need an input, or to be named."""


def of_plan(plan: Plan) -> dict[str, Any]:
    """The recipe of the first planned round: the steps of its sites, the updates of its WAN, and [overlap]."""
    host, world, cohort = plan.aggregator.host, plan.aggregator.world, plan.rounds[0].row.cohort
    visits = (cohort.local_work * host.num_visits[cohort.site]).max()
    steps = max(1, math.ceil(visits / host.work.batch_size))
    overlap, num_params = host.overlap, len(host.initial_params)
    share = overlap.num_sent(num_params) / num_params
    return {
        "num_params": world.model_bytes / share / 4,
        "step_s": float(cohort.compute_s.max()) / steps,
        "local_steps": overlap.fragments * steps,
        "bits": 32 * world.update_bytes / max(world.model_bytes, 1.0),
        "num_sites": len(cohort.site),
        "fragments": overlap.fragments,
        "overlap_steps": float(steps if overlap.delayed else overlap.steps),
    }


def rows(varied: Mapping[str, Sequence[Any]], plan: Plan | None) -> list[dict[str, float]]:
    """The table: a row for each combination of these values, {field of `Recipe`: values}; those of `plan` are the
    others. A recipe is followed by `sent_bits`, the bandwidth that each of `UTILISATIONS` needs, and `utilisation`,
    that over the links of `plan`, NaN for another number of sites. InputError for a wrong value."""
    if (number := math.prod(map(len, varied.values()))) > MOST_ROWS:
        raise InputError("--vary", f"gives {number:,} rows, the most is {MOST_ROWS:,}", "name fewer values")
    usual, table = of_plan(plan) if plan else {}, []
    for values in product(*varied.values()):
        recipe = validate(merge(usual, dict(zip(varied, values, strict=True)), Recipe), Recipe)
        needed = {f"needed_bps_{100 * share:.0f}": recipe.needed_bps(share) for share in UTILISATIONS}
        here = _over_links(recipe, plan) if plan else math.nan
        table.append(recipe.model_dump() | {"sent_bits": recipe.sent_bits} | needed | {"utilisation": here})
    return table


def _over_links(recipe: Recipe, plan: Plan) -> float:
    """The utilisation over the links between the sites of the first planned round."""
    links, sites = plan.aggregator.world.links, plan.rounds[0].row.cohort.site
    if len(sites) != recipe.num_sites:
        return math.nan
    num_bytes = recipe.num_params * recipe.bits / 8 / recipe.fragments
    return recipe.utilisation(float(links.transfer_s(sites, 0.0, num_bytes, num_bytes).together_s.max()))


def report(table: Sequence[Mapping[str, float]]) -> list[str]:
    """The lines of the table."""
    cells = []
    for row in table:
        *recipe, sent_bits, utilisation = [value for name, value in row.items() if name[:6] != "needed"]
        needed = [figures(row[f"needed_bps_{100 * share:.0f}"] / 1e9) for share in UTILISATIONS]
        here = "-" if math.isnan(utilisation) else f"{utilisation:.1%}"
        cells.append((*(f"{value:g}" for value in recipe), figures(sent_bits / 1e9), *needed, here))
    head = ("parameters", "step s", "H", "bits", "sites", "P", "overlap", "latency s", "Gbit each")
    return [
        "Gbit/s that a utilisation needs of the slowest link of a ring; here: the utilisation over the input's links",
        *aligned((*head, *(f"{share:.0%}" for share in UTILISATIONS), "here"), cells),
        "analytic: every H / P steps each site sends 2 (1 - 1 / sites) x parameters x bits / P; steps of equal length",
    ]
