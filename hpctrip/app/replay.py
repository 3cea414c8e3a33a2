"""Replays the simulated half of a finished run from its own file: world, views, cohorts, arrivals and the clock.

Nothing is trained. What training contributed (accuracies, measured wall times) is taken from the record;
everything that follows from the input and the history is computed anew, by the code that the run itself used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpctrip.app.config import Experiment, validate
from hpctrip.base.errors import Fault, InputError
from hpctrip.record.reader import Run
from hpctrip.record.verify import RELATIVE_TOLERANCE
from hpctrip.sim.policies.base import Decision, SiteView
from hpctrip.sim.rounds import History, RoundRow, Status
from hpctrip.sim.simulation import Simulation
from hpctrip.sim.timing import RoundTiming


class NotReplayable(Exception):
    """Why a sound file cannot be replayed here."""


def replay(run: Run, plugins: bool = False) -> list[Fault]:
    """Every recorded number of the simulated half that its input does not lead to; empty: the run is confirmed.

    `plugins` allows importing the plug-ins that the input names: they are code. Raises NotReplayable where the run
    needs what is not here: its plug-ins, its power traces, an input that this version understands.
    """
    if run.input.get("plugins") and not plugins:
        raise NotReplayable("its input names plug-ins, which are code: --plugins runs them")
    history = run.history()
    try:
        experiment = validate(run.input)
        simulation = _simulation(run, experiment)
    except InputError as error:
        raise NotReplayable(str(error.faults[0])) from None
    return [*_sites(run, simulation), *(_rounds(run, simulation, history))]


def _simulation(run: Run, experiment: Experiment) -> Simulation:
    """The run's world, built anew; the sizes of the shards are those of its file, so no data are needed."""
    e, world = experiment, experiment.world(run.meta["num_params"] or 1)
    visits = e.train.num_visits(run.sites.get("num_samples", np.zeros(0)), e.workload)
    if len(visits) != len(world):
        raise InputError("sites", f"the input leads to {len(world)}, the file has sizes of {len(visits)}")
    return Simulation(world, e.profiler, e.policy, visits, e.seed)


def _sites(run: Run, simulation: Simulation) -> Iterator[Fault]:
    world = simulation.world
    expected = {
        "distance_m": world.distance_m,
        "bandwidth_bps": world.bandwidth_bps,
        "delay_s": world.delay_s,
        "power_fraction": world.power_fraction(0.0),
        "compute_s": world.timing.seconds_per_sample * simulation.num_visits,
    }
    for name, values in expected.items():
        if name in run.sites:
            yield from _differences(
                f"{run.path}: site", range(len(world)), name, run.sites[name].to_numpy(), values
            )


def _rounds(run: Run, simulation: Simulation, history: History) -> Iterator[Fault]:
    past = History()
    for row in history.rows:
        place = f"{run.path}: round {row.round}"
        view = simulation.view(row.clock_start_s, past)
        try:
            decision = simulation.decide(view, past)
        except InputError as error:
            yield Fault(place, f"the policy now says: {error.faults[0]}")
            return
        if not np.array_equal(row.cohort.site, decision.cohort):
            yield Fault(
                place,
                f"its cohort {_short(row.cohort.site)} is not the one that policy "
                f"{simulation.policy.kind!r} chooses, {_short(decision.cohort)}",
            )
        else:
            yield from _decided(place, row, view, decision)
            yield from _timed(place, row, _timing(simulation, row, past), simulation)
        past = past.appended(row)


def _timing(simulation: Simulation, row: RoundRow, past: History) -> RoundTiming:
    work_s = simulation.work_s(past)
    if simulation.world.timing.compute == "measured":
        work_s[row.cohort.site] = row.cohort.train_wall_s
    return simulation.world.round_timing(row.round, row.clock_start_s, row.cohort.site, work_s)


def _decided(place: str, row: RoundRow, view: SiteView, decision: Decision) -> Iterator[Fault]:
    sites = row.cohort.site
    seen = view.power_fraction[sites]
    yield from _differences(
        f"{place}, site", sites, "seen_power_fraction", row.cohort.seen_power_fraction, seen
    )
    recorded, expected = row.candidates, decision.candidates
    if (recorded is None) != (expected is None) or (
        recorded is not None and not np.array_equal(recorded.k, expected.k)
    ):
        yield Fault(place, "its candidates are not those that the policy weighs")
    elif recorded is not None:
        for name in ("gain", "round_s", "efficiency"):
            yield from _differences(
                f"{place}, candidate k =", recorded.k, name, getattr(recorded, name), getattr(expected, name)
            )


def _timed(place: str, row: RoundRow, timing: RoundTiming, simulation: Simulation) -> Iterator[Fault]:
    sites, cohort = row.cohort.site, row.cohort
    power = simulation.world.power_fraction(row.clock_start_s)[sites]
    arrived = np.where(cohort.status == Status.DIVERGED, int(Status.ARRIVED), cohort.status)
    trained = np.where(timing.status == Status.ARRIVED, simulation.num_visits[sites], 0)
    for name, found, expected in (
        ("power_fraction", cohort.power_fraction, power),
        ("compute_s", cohort.compute_s, timing.compute_s),
        ("comm_s", cohort.comm_s, timing.comm_s),
        ("status", arrived, timing.status),
        ("num_samples", cohort.num_samples, trained),
    ):
        yield from _differences(f"{place}, site", sites, name, found, expected)
    clock = simulation.world.timing.clock
    yield from _differences(
        place, [f"(clock {clock})"], "makespan_s", np.array([row.makespan_s]), np.array([timing.makespan_s])
    )


def _differences(
    place: str, keys: range | list | np.ndarray, name: str, found: np.ndarray, expected: np.ndarray
) -> Iterator[Fault]:
    """One fault for the first element that differs, with how many do."""
    same = np.isclose(found, expected, rtol=RELATIVE_TOLERANCE, atol=1e-12, equal_nan=True)
    if not same.all():
        first = int(np.flatnonzero(~same)[0])
        more = f" (and {(~same).sum() - 1} more)" if (~same).sum() > 1 else ""
        yield Fault(
            f"{place} {keys[first]}", f"{name} is {found[first]:g}, recomputed {expected[first]:g}{more}"
        )


def _short(sites: np.ndarray) -> str:
    head = ", ".join(map(str, sites[:8]))
    return f"[{head}{', ...' if len(sites) > 8 else ''}] ({len(sites)})"
