"""Worlds of a few sites that a person can check by hand, and rounds in them whose training is assumed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.network.matrix import MatrixNetwork
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.power import POWER_MODELS, PowerModel, PowerSupply
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World


class Steps(PowerModel):
    """Power fractions [site][step] over steps of so many seconds; the last step goes on."""

    fractions: list[list[float]]
    step_s: float = 1e6

    def supply(self, num_sites, seed):
        supply, table = PowerSupply(), np.array(self.fractions)
        supply.step_s = self.step_s
        supply.at = lambda clock_s: table[:, min(int(clock_s // self.step_s), table.shape[1] - 1)].copy()
        return supply


def sites_at(num_sites, *distances_m):
    """So many sites at one distance, or from the first to the second."""
    return SITES["uniform"](
        num_sites=num_sites, min_distance_m=distances_m[0], max_distance_m=distances_m[-1]
    )


def world(sites=3, distance_m=0.0, payload_bytes=0.0, sent_fraction=1.0, **tables):
    """Fully powered sites, or the number of them, that send nothing; a second of work a sample."""
    usual = {
        "seed": 0,
        "network": DistanceNetwork(update_bytes=0.0),
        "power": POWER_MODELS["constant"](),
        "throughput": THROUGHPUT_MODELS["linear"](),
        "timing": Timing(seconds_per_sample=1.0),
        "faults": Faults(),
        "availability": {},
        "accounts": Accounts(),
        "carbon": SIGNALS["none"](),
        "price": SIGNALS["none"](),
    }
    placed = sites_at(sites, distance_m) if isinstance(sites, int) else sites
    given = {name: table for name, table in tables.items() if table is not None}
    return World.build(SimpleNamespace(sites=placed, **usual | given), payload_bytes, sent_fraction)


class Grouped(type(SITES["uniform"]())):
    """Sites in regions 0, 1, 2, 0, 1, 2, and so on."""

    def columns(self):
        return {"region": np.array([str(site % 3) for site in range(self.num_sites)])}


def matrix(folder, rows, **keys):
    """A network of the links `rows`: lines "from,to,rtt_ms,bandwidth_gbps", separated by blanks."""
    (folder / "links.csv").write_text("from,to,rtt_ms,bandwidth_gbps\n" + "\n".join(rows.split()))
    return MatrixNetwork(path=str(folder / "links.csv"), **{"aggregator": "0"} | keys)


def links(alone_s, network=None):
    """Links of a network on which transfers take so long by themselves, whatever their size, [N] s."""
    delays_s = np.array(alone_s)
    steady = (network or DistanceNetwork()).links(np.zeros(len(delays_s)), {})
    ways = 2 if steady.round_trip else 1
    return replace(steady, propagation_s=delays_s / ways, bandwidth_bps=np.full(len(delays_s), np.inf))


def faults(tmp_path=None, outages="", **keys):
    """Faults with these lines as the file of outages."""
    if outages:
        (tmp_path / "outages.csv").write_text("site,start_s,end_s\n" + outages)
        keys["outages"] = str(tmp_path / "outages.csv")
    return Faults(**keys)


def played(simulation, rounds=10**9, accuracy=np.nan, state=None):
    """The state after so many rounds, or the last one, in all of which this is the accuracy."""
    state = state or State()
    while state.round < rounds and not state.stop_reason:
        draft = simulation.begin(state)
        state, _ = simulation.finish(draft, Outcome.assumed(np.zeros(len(draft.cohort)), accuracy))
    return state
