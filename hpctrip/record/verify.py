"""Checks the consistency of a results file: its schema, and numbers that follow from others in the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import get_args

import numpy as np

from hpctrip.base.errors import Fault
from hpctrip.record import schema
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile
from hpctrip.sim.rounds import History, RoundRow, Status
from hpctrip.sim.timing import Timing

RELATIVE_TOLERANCE = 1e-9
"""Tolerance of recomputed float64 numbers, whose last digits depend on the order of summation."""

MOST_FAULTS = 1000
"""Largest number of faults that are collected for one file."""


@np.errstate(all="ignore")  # values that are not finite compare as different, so no warning is needed
def verify(results: ResultsFile) -> list[Fault]:
    """Faults where a results file contradicts the schema or itself, at most MOST_FAULTS. Its checksums were verified
    when it was read."""
    return results.schema_faults() or [*islice(results.kind.contradictions(results), MOST_FAULTS)]


def run_contradictions(run: Run) -> Iterator[Fault]:
    """The contradictions in the tables of a run. Numbers are checked only if the structure has no faults, so that a
    cause is reported once."""
    faults = [*islice(run.structure_faults(), MOST_FAULTS)]
    yield from faults or _arithmetic(run)


def _arithmetic(run: Run) -> Iterator[Fault]:
    history = run.history()
    clock, deadline_s = run.setting("timing.clock", "straggler"), run.setting("faults.deadline_s")
    clocks = get_args(Timing.model_fields["clock"].annotation)
    if clock not in clocks:
        yield Fault(f"{run.path}: timing.clock", f"is none of {', '.join(clocks)}")
        return
    makespan = _makespan(Timing.model_construct(clock=clock), deadline_s or math.inf)
    for row in history.rows:
        for check in (_cohort, _samples, _energy, makespan, _accuracy, _vote, _measured):
            for problem in check(row):
                yield Fault(f"{run.path}: round {row.round}", problem)
    yield from _over_time(run, history)


def _differ(recorded: float, expected: float) -> bool:
    if math.isnan(recorded) or math.isnan(expected):
        return math.isnan(recorded) != math.isnan(expected)
    return not math.isclose(recorded, expected, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)


def _cohort(row: RoundRow) -> Iterator[str]:
    sites = row.cohort.site
    if row.num_sites != len(sites):
        yield f"num_sites is {row.num_sites}, its cohort has {len(sites)}"
    arrived = int((row.cohort.status == Status.ARRIVED).sum())
    if row.num_arrived != arrived:
        yield f"num_arrived is {row.num_arrived}, in its cohort {arrived} arrived"
    for site in sites[~np.isin(row.cohort.status, list(Status))]:
        yield f"site {site} has an unknown status"
    unique, counts = np.unique(sites, return_counts=True)
    for site in unique[counts > 1]:
        yield f"site {site} is in its cohort more than once"


def _samples(row: RoundRow) -> Iterator[str]:
    total = int(row.cohort.num_samples.sum())
    if row.num_samples != total:
        yield f"num_samples is {row.num_samples}, its cohort's sum is {total}"


def _energy(row: RoundRow) -> Iterator[str]:
    """Energy, carbon and cost are sums over the cohort."""
    for name in ("compute_energy_j", "wait_energy_j", "comm_energy_j", "carbon_g", "cost"):
        recorded, total = getattr(row, name), float(getattr(row.cohort, name).sum())
        if _differ(recorded, total):
            yield f"{name} is {recorded:g}, its cohort's sum is {total:g}"
    total = row.compute_energy_j + row.wait_energy_j + row.comm_energy_j
    if _differ(row.energy_j, total):
        yield f"energy_j is {row.energy_j:g}, its parts give {total:g}"


def _makespan(timing: Timing, deadline_s: float) -> Callable[[RoundRow], Iterator[str]]:
    """A check of makespan and straggler (Eq. 7, by the clock that the input names) against the times of the cohort."""

    def check(row: RoundRow) -> Iterator[str]:
        compute_s, comm_s = row.cohort.compute_s, row.cohort.comm_s
        if not len(compute_s):
            yield "its cohort is empty"
            return
        finish_s, status = compute_s + comm_s, row.cohort.status
        late = (status != Status.OUT) & (finish_s > deadline_s)
        for site in row.cohort.site[late != (status == Status.LATE)]:
            yield f"site {site}: its times and the deadline of {deadline_s:g} s contradict its status"
        expected = timing.makespan_s(compute_s, comm_s, status, deadline_s)
        if _differ(row.makespan_s, expected):
            yield f"makespan_s is {row.makespan_s:g}, the cohort's times give {expected:g} (clock {timing.clock})"
        asked = status != Status.OUT
        at = np.flatnonzero(row.cohort.site == row.straggler)
        if not len(at):
            yield f"straggler {row.straggler} is not in its cohort"
        elif asked.any() and _differ(finish_s[at[0]], finish_s[asked].max()):
            yield f"straggler {row.straggler} is not the site that finished last"
        else:
            for name, recorded, values in (
                ("straggler_compute_s", row.straggler_compute_s, compute_s),
                ("straggler_comm_s", row.straggler_comm_s, comm_s),
            ):
                if _differ(recorded, values[at[0]]):
                    yield f"{name} is {recorded:g}, its cohort says {values[at[0]]:g}"

    return check


def _accuracy(row: RoundRow) -> Iterator[str]:
    expected = row.eval_correct / row.eval_seen if row.eval_seen > 0 else math.nan
    if _differ(row.accuracy, expected):
        yield f"accuracy is {row.accuracy:g}, {row.eval_correct} of {row.eval_seen} correct is {expected:g}"


def _measured(row: RoundRow) -> Iterator[str]:
    phases_j = row.record_wall_j + row.train_wall_j + row.exchange_wall_j + row.evaluate_wall_j
    if _differ(row.wall_j, phases_j):
        yield f"wall_j is {row.wall_j:g}, its phases' sum is {phases_j:g}"
    expected = row.num_samples / row.wall_j if row.wall_j > 0 else math.nan
    if _differ(row.samples_per_wall_j, expected):
        yield f"samples_per_wall_j is {row.samples_per_wall_j:g}, samples and joules give {expected:g}"


def _vote(row: RoundRow) -> Iterator[str]:
    if row.candidates is None:
        if row.voted_num_sites != 0:
            yield f"voted_num_sites is {row.voted_num_sites} without candidates"
        return
    if row.voted_num_sites != row.candidates.vote:
        yield f"voted_num_sites is {row.voted_num_sites}, its candidates vote for {row.candidates.vote}"
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = row.candidates.gain / row.candidates.round_s
    wrong = [_differ(*pair) for pair in zip(row.candidates.efficiency, expected, strict=True)]
    for k in row.candidates.k[wrong]:
        yield f"candidate k = {k}: efficiency is not gain / round_s"


def _over_time(run: Run, history: History) -> Iterator[Fault]:
    """The clock is continuous, efficiency is accuracy gain per second, and the time to accuracy is that of the first
    round with the target accuracy."""
    clock_s, evaluated = None, None
    for row in history.rows:
        place = f"{run.path}: round {row.round}"
        if clock_s is not None and _differ(row.clock_start_s, clock_s):
            yield Fault(
                place, f"clock_start_s is {row.clock_start_s:g}, the round before ended at {clock_s:g}"
            )
        if _differ(row.clock_s, row.clock_start_s + row.makespan_s):
            yield Fault(place, f"clock_s is {row.clock_s:g}, not clock_start_s + makespan_s")
        clock_s = row.clock_s
        if row.eval_seen > 0:
            # the first gain is over the untrained model, whose accuracy is not in the file
            if evaluated is not None and row.clock_s > evaluated.clock_s:
                expected = (row.accuracy - evaluated.accuracy) / (row.clock_s - evaluated.clock_s)
                if _differ(row.efficiency, expected):
                    yield Fault(
                        place, f"efficiency is {row.efficiency:g}, the gain per second is {expected:g}"
                    )
            evaluated = row
    expected = schema.time_to_accuracy_s(history.curve(), run.meta["target_accuracy"])
    if _differ(run.time_to_accuracy_s, expected):
        yield Fault(
            f"{run.path}: time_to_accuracy_s", f"is {run.time_to_accuracy_s:g}, the rounds say {expected:g}"
        )
