"""Estimates the wall time and disk space of a study, from finished runs of the same variant or else from a forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from hpctrip.base.text import counted, duration, size_text
from hpctrip.plan import forecast
from hpctrip.plan.speed import Speed, stated
from hpctrip.record.reader import open_run
from hpctrip.studies.run_store import RunState
from hpctrip.studies.tables import wall_s

LOOK_AHEAD = 10
"""Number of rounds that a forecast simulates."""


def report(lines: Sequence[RunState], num_workers: int, samples_per_second: float | None) -> Iterator[str]:
    """Lines to print about the status and the cost of the missing runs. The speed of this host is measured once per
    workload, unless `samples_per_second` is set."""
    counts = Counter(line.status for line in lines)
    yield f"{counted(len(lines), 'run')}: " + ", ".join(
        f"{number} {status}" for status, number in counts.items()
    )
    missing: dict[str, list[RunState]] = {}
    for line in lines:
        if line.can_be_made:
            missing.setdefault(line.entry.variant, []).append(line)
    if not missing:
        yield "no runs are missing"
        return
    measured = _measured_wall_s(line for line in lines if line.entry.variant in missing)
    speeds: dict[str, Speed] = {}
    if samples_per_second:
        speeds = dict.fromkeys(map(_speed_key, lines), stated(samples_per_second))
    total_s, longest_s, results, checkpoint = 0.0, 0.0, 0.0, 0.0
    for variant, members in missing.items():
        key = _speed_key(members[0])
        planned = forecast(members[0].entry.run_input.experiment, LOOK_AHEAD, speeds.get(key))
        speeds[key] = planned.speed
        each_s = measured.get(variant, planned.total("wall_s", planned.aggregator.experiment.stop.max_rounds))
        how = "as in finished runs" if variant in measured else "at most, with max_rounds"
        yield f"{variant}: {len(members)} missing, {duration(each_s)} each ({how})"
        total_s += len(members) * each_s
        longest_s = max(longest_s, each_s)
        results += len(members) * planned.written_bytes["results"]
        checkpoint = max(checkpoint, planned.written_bytes["checkpoint"])
    bound = "" if missing.keys() <= measured.keys() else "at most "
    wall = duration(max(total_s / num_workers, longest_s))
    number = sum(map(len, missing.values()))
    yield f"wall time: {bound}{wall}, {num_workers} in parallel ({duration(total_s)} on one worker)"
    yield f"not counted: the start of {counted(number, 'run')}, seconds each on several ranks, less without them"
    meanwhile = size_text(2 * num_workers * checkpoint)
    yield f"disk: at most {size_text(results)} of results, plus temporarily {meanwhile} of checkpoints"


def _measured_wall_s(lines: Iterable[RunState]) -> dict[str, float]:
    """{variant: mean wall time} of the finished runs that trained all their rounds, as rounds taken from the cache
    cost no time."""
    walls: dict[str, list[float]] = {}
    for line in lines:
        run = open_run(line.file) if line.finished and line.file and not line.imported else None
        if run is not None and not run.meta["stored_rounds"]:
            walls.setdefault(line.entry.variant, []).append(wall_s(run))
    return {variant: sum(each) / len(each) for variant, each in walls.items()}


def _speed_key(line: RunState) -> str:
    experiment = line.entry.run_input.experiment
    return repr((experiment.workload, experiment.train, experiment.engine))
