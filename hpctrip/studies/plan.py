"""Estimates the wall time and disk space of a study, from finished runs of the same variant or else from a forecast."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpctrip.base.text import size_text
from hpctrip.base.units import HOUR_S
from hpctrip.plan import forecast_one_rank
from hpctrip.plan.plan import Plan
from hpctrip.plan.speed import Speed
from hpctrip.record.reader import Run
from hpctrip.studies.ledger import Line, wall_s

LOOK_AHEAD = 10
"""Number of rounds that a forecast simulates."""


@dataclass(frozen=True)
class Group:
    """The missing runs of one variant."""

    variant: str
    num_runs: int
    wall_s: float
    """Wall time of one run."""
    measured: bool
    """Whether `wall_s` is the mean of finished runs; else it is a forecast to max_rounds, an upper bound."""
    forecast: Plan


def groups(lines: Sequence[Line], samples_per_second: float | None) -> list[Group]:
    """The missing runs by variant. The speed of this host is measured once per workload, unless
    `samples_per_second` is set."""
    made: dict[str, list[float]] = {}
    todo: dict[str, list[Line]] = {}
    for line in lines:
        if line.can_be_made:
            todo.setdefault(line.entry.variant, []).append(line)
        elif line.stored.run is not None and not line.stored.imported and _trained(line.stored.run):
            made.setdefault(line.entry.variant, []).append(wall_s(line.stored.run))
    speeds: dict[str, Speed] = {}
    if samples_per_second:
        speeds = dict.fromkeys(map(_speed_key, lines), Speed(samples_per_second, math.inf, "as given"))
    missing = []
    for variant, members in todo.items():
        key, walls = _speed_key(members[0]), made.get(variant)
        forecast = forecast_one_rank(members[0].entry.run_input.experiment, LOOK_AHEAD, speeds.get(key))
        speeds[key] = forecast.speed
        wall = sum(walls) / len(walls) if walls else forecast.max_rounds_wall_s
        missing.append(Group(variant, len(members), wall, bool(walls), forecast))
    return missing


def _trained(run: Run) -> bool:
    """Whether all rounds were trained; rounds taken from the cache cost no wall time."""
    return not run.meta["stored_rounds"]


def _speed_key(line: Line) -> str:
    experiment = line.entry.run_input.experiment
    return repr((experiment.workload, experiment.train, experiment.engine))


def report(lines: Sequence[Line], missing: Sequence[Group], num_workers: int) -> Iterator[str]:
    """Lines to print about the status and the cost of the missing runs."""
    counts = Counter(line.status for line in lines)
    yield f"{len(lines)} runs: " + ", ".join(f"{number} {status}" for status, number in counts.items())
    if not missing:
        yield "nothing is left to make"
        return
    for group in missing:
        how = "as those that are finished" if group.measured else "at most, to max_rounds"
        yield f"{group.variant}: {group.num_runs} to make, {duration(group.wall_s)} each ({how})"
    total = sum(group.num_runs * group.wall_s for group in missing)
    longest = max(group.wall_s for group in missing)
    wall = max(total / num_workers, longest)
    bound = "" if all(group.measured for group in missing) else "at most "
    yield f"wall time: {bound}{duration(wall)}, {num_workers} side by side ({duration(total)} of one worker)"
    results = sum(group.num_runs * group.forecast.written_bytes["results"] for group in missing)
    meanwhile = 2 * num_workers * max(group.forecast.written_bytes["checkpoint"] for group in missing)
    yield f"disk: at most {size_text(results)} of results, and meanwhile {size_text(meanwhile)} of checkpoints"


def duration(seconds: float) -> str:
    """Wall time as short text, e.g. 90 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / HOUR_S:.1f} h"
