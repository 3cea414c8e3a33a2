"""Checks the consistency of a results file: its schema, and numbers that follow from others in the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import singledispatch
from itertools import islice
from typing import Any

import numpy as np

from hpctrip.base.errors import Fault
from hpctrip.device.meter import PHASES
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile
from hpctrip.sim.arrivals import SYNCHRONOUS
from hpctrip.sim.flights import RoundTimes
from hpctrip.sim.quantities import ACTIVITIES, SPENT
from hpctrip.sim.rounds import RoundRow, Status
from hpctrip.sim.timing import Timing

RELATIVE_TOLERANCE = 1e-9
"""Tolerance of recomputed float64 numbers, whose last digits depend on the order of summation."""

MOST_FAULTS = 1000
"""Largest number of faults that are collected for one file."""


@np.errstate(all="ignore")  # values that are not finite compare as different, so no warning is needed
def verify(results: ResultsFile) -> list[Fault]:
    """Faults where a results file contradicts the schema or itself, at most MOST_FAULTS. Its checksums were verified
    when it was read."""
    return results.schema_faults() or [*islice(contradictions(results), MOST_FAULTS)]


@singledispatch
def contradictions(run: Run) -> Iterator[Fault]:
    """The faults of tables that contradict one another; other classes of results files register their own.
    Numbers are checked only if the structure has no faults, so that a cause is reported once."""
    yield from [*run.structure_faults()] or _arithmetic(run)


def _arithmetic(run: Run) -> Iterator[Fault]:
    """The rounds, in their order, and the attribute `time_to_accuracy_s`."""
    clock, deadline_s = run.setting("timing.clock", "straggler"), run.setting("faults.deadline_s")
    rows = run.history().rows
    problems: list[list[str]] = [[] for _ in rows]
    for name, expected, how in _derived(run, rows):
        recorded, expected = run.rounds[name].to_numpy(), np.asarray(expected)
        for i in unequal(recorded, expected):
            problems[i].append(f"{name} is {recorded[i]:g}, {how} {expected[i]:g}")
    timing = Timing.model_construct(clock=clock)
    awaited: set[tuple[int, int]] = set()
    waits_for_all = is_synchronous(run)
    for row, texts in zip(rows, problems, strict=True):
        times = _times(row, timing, deadline_s or math.inf, run, waits_for_all)
        flights = _flights(row, awaited, run)
        for text in (*texts, *_measured(row), *_cohort(row, run), *flights, *times, *_candidates(row)):
            yield Fault(f"{run.path}: round {row.round}", text)
    reached_s = run.time_to(run.meta["target_accuracy"])
    if unequal(run.time_to_accuracy_s, reached_s).size:
        problem = f"is {run.time_to_accuracy_s:g}, the rounds say {reached_s:g}"
        yield Fault(f"{run.path}: time_to_accuracy_s", problem)


def unequal(recorded: np.ndarray, expected: np.ndarray, tolerance: float = 1e-12) -> np.ndarray:
    """The indices of the elements that differ: texts that are not equal, and numbers that differ by more than rounding,
    which is relative, or `tolerance` near 0. NaN equals NaN."""
    if np.asarray(expected).dtype == object:
        return np.flatnonzero(recorded != expected)
    same = np.isclose(recorded, expected, rtol=RELATIVE_TOLERANCE, atol=tolerance, equal_nan=True)
    return np.flatnonzero(~same)


def is_synchronous(run: Run) -> bool:
    """Whether all that start in a round of this run also end in it."""
    return run.setting("rounds.kind", SYNCHRONOUS.kind) == SYNCHRONOUS.kind


def _derived(run: Run, rows: tuple[RoundRow, ...]) -> Iterator[tuple[str, Any, str]]:
    """(column of /rounds that follows from others, its values [R] according to these, how it follows)."""
    rounds, cohorts = run.rounds, [row.cohort for row in rows]
    if is_synchronous(run):  # else sites of the cohort may be under way already
        yield "num_sites", [len(cohort.site) for cohort in cohorts], "its cohort's is"
    yield "num_arrived", [(cohort.status == Status.ARRIVED).sum() for cohort in cohorts], "its cohort's is"
    for name in ("num_samples", *SPENT):
        yield name, [getattr(row.billed, name).sum() for row in rows], "its cohort's sum is"
    yield "energy_j", sum(rounds[name] for name in ACTIVITIES), "its parts give"
    votes = [row.candidates.vote if row.candidates else 0 for row in rows]
    yield "voted_num_sites", votes, "its candidates vote for"
    yield "accuracy", rounds["eval_correct"] / rounds["eval_seen"], "its counts give"
    wall_j = sum(rounds[f"{phase}_wall_j"] for phase in PHASES)
    yield "wall_j", wall_j, "its phases' sum is"
    per_j = (rounds["num_samples"] / rounds["wall_j"]).where(rounds["wall_j"] > 0)
    yield "samples_per_wall_j", per_j, "samples and joules give"
    before_s = rounds["clock_s"].shift().fillna(rounds["clock_start_s"])
    yield "clock_start_s", before_s, "the round before ended at"
    yield "clock_s", rounds["clock_start_s"] + rounds["makespan_s"], "clock_start_s + makespan_s is"
    # the first gain is over the untrained model, whose accuracy is not in the file
    gains = rounds.loc[rounds["eval_seen"] > 0, ["accuracy", "clock_s"]].diff().iloc[1:]
    gains = gains[gains["clock_s"] > 0]
    per_s = rounds["efficiency"].copy()
    per_s[gains.index] = gains["accuracy"] / gains["clock_s"]
    yield "efficiency", per_s, "the gain per second is"


def _measured(row: RoundRow) -> Iterator[str]:
    for phase in PHASES:
        if (drawn_j := getattr(row, f"{phase}_wall_j")) < 0:
            yield f"{phase}_wall_j is {drawn_j:g}, and a machine draws no less than nothing"


def _cohort(row: RoundRow, run: Run) -> Iterator[str]:
    sites = row.cohort.site
    for site in sites[~np.isin(row.cohort.status, list(Status))]:
        yield f"{run.site_name(site)} has an unknown status"
    flights, counts = np.unique([sites, row.cohort.age], axis=1, return_counts=True)
    for site in flights[0, counts > 1]:
        yield f"{run.site_name(site)} is in its cohort more than once"


def _flights(row: RoundRow, awaited: set[tuple[int, int]], run: Run) -> Iterator[str]:
    """Contradictions to the flights (site, version) that were under way after the round before; `awaited` has these,
    and afterwards those that are under way after the round."""
    times = RoundTimes.recorded(row)
    flights = [*zip(times.flights.site.tolist(), times.flights.version.tolist(), strict=True)]
    earlier = {flight for flight, age in zip(flights, times.age, strict=True) if age > 0}
    for site, version in sorted(earlier ^ awaited):
        there = (
            "is not in the round before" if (site, version) in earlier else "was under way, and is missing"
        )
        yield f"the flight of {run.site_name(site)} that started in round {version + 1} {there}"
    under_way = times.flights.status == Status.UNDER_WAY
    awaited.clear()
    awaited.update(flight for flight, flies in zip(flights, under_way, strict=True) if flies)


def _times(row: RoundRow, timing: Timing, deadline_s: float, run: Run, waits_for_all: bool) -> Iterator[str]:
    """Contradictions of status and, where rounds are synchronous, makespan (Eq. 7, by the clock that the input names)
    and straggler to the times of the cohort."""
    cohort, status = row.cohort, row.cohort.status
    if not len(cohort.site):
        yield "its cohort is empty"
        return
    after_s, asked = cohort.queue_s + cohort.compute_s, status != Status.OUT
    finish_s = after_s + cohort.comm_s
    late = asked & (finish_s > deadline_s) & (status != Status.UNDER_WAY)
    for site in cohort.site[late != (status == Status.LATE)]:
        yield f"{run.site_name(site)}: its times and the deadline of {deadline_s:g} s contradict its status"
    if not waits_for_all or (run.input.get("availability") and not asked.any()):  # until one may be asked
        return
    expected = timing.makespan_s(after_s, cohort.comm_s, status, deadline_s)
    if unequal(row.makespan_s, expected).size:
        yield f"makespan_s is {row.makespan_s:g}, the cohort's times give {expected:g} (clock {timing.clock})"
    at = cohort.site == row.straggler
    if not at.any():
        yield f"the straggler, {run.site_name(row.straggler)}, is not in its cohort"
    elif asked.any() and unequal(finish_s[at][0], finish_s[asked].max()).size:
        yield f"the straggler, {run.site_name(row.straggler)}, is not the site that finished last"
    else:
        for name in ("compute_s", "comm_s"):
            recorded, expected = getattr(row, f"straggler_{name}"), getattr(cohort, name)[at][0]
            if unequal(recorded, expected).size:
                yield f"straggler_{name} is {recorded:g}, its cohort says {expected:g}"


def _candidates(row: RoundRow) -> Iterator[str]:
    if row.candidates is not None:
        expected = row.candidates.gain / row.candidates.round_s
        for k in row.candidates.k[unequal(row.candidates.efficiency, expected)]:
            yield f"candidate k = {k}: efficiency is not gain / round_s"
