"""What a study will take: wall time from finished runs of the same variant, else from a forecast; and disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpctrip.base.text import size_text
from hpctrip.plan import alone
from hpctrip.plan.plan import Plan
from hpctrip.plan.speed import Speed
from hpctrip.record.reader import Run
from hpctrip.studies.display import duration
from hpctrip.studies.ledger import Line, wall_s

LOOK_AHEAD = 10
"""Rounds."""


@dataclass(frozen=True)
class Group:
    """The runs of one variant that are to be made."""

    variant: str
    num_runs: int
    wall_s: float
    """Of one run."""
    known: bool
    """By finished runs; else up to max_rounds."""
    expected: Plan


def groups(lines: Sequence[Line], samples_per_second: float | None) -> list[Group]:
    """What is to be made, by variant. A host's speed is measured once for every workload."""
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
    found = []
    for variant, members in todo.items():
        key, walls = _speed_key(members[0]), made.get(variant)
        expected = alone(members[0].entry.run_input.experiment, LOOK_AHEAD, speeds.get(key))
        speeds[key] = expected.speed
        wall = sum(walls) / len(walls) if walls else expected.max_rounds_wall_s
        found.append(Group(variant, len(members), wall, bool(walls), expected))
    return found


def _trained(run: Run) -> bool:
    """Whether its wall times tell what training takes: rounds that a store knew cost nothing."""
    return not run.meta["stored_rounds"]


def _speed_key(line: Line) -> str:
    experiment = line.entry.run_input.experiment
    return repr((experiment.workload, experiment.train, experiment.engine))


def report(lines: Sequence[Line], found: Sequence[Group], num_workers: int) -> Iterator[str]:
    """What is said of it."""
    counts = Counter(line.status for line in lines)
    yield f"{len(lines)} runs: " + ", ".join(f"{number} {status}" for status, number in counts.items())
    if not found:
        yield "nothing is left to make"
        return
    for group in found:
        how = "as those that are finished" if group.known else "at most, to max_rounds"
        yield f"{group.variant}: {group.num_runs} to make, {duration(group.wall_s)} each ({how})"
    total = sum(group.num_runs * group.wall_s for group in found)
    longest = max(group.wall_s for group in found)
    wall = max(total / num_workers, longest)
    bound = "" if all(group.known for group in found) else "at most "
    yield f"wall time: {bound}{duration(wall)}, {num_workers} side by side ({duration(total)} of one worker)"
    results = sum(group.num_runs * group.expected.written["results"] for group in found)
    meanwhile = 2 * num_workers * max(group.expected.written["checkpoint"] for group in found)
    yield f"disk: at most {size_text(results)} of results, and meanwhile {size_text(meanwhile)} of checkpoints"
