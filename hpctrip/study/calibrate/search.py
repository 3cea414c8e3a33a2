"""The search for the constants: what does not depend on the clock is trained once in every world that training tells
apart, then the dynamic bars at one point after the other, the most promising first.

What is known of a point bounds its misfit from below, whatever its dynamic bars would be. So the search may end before
it has tried all: no point whose bound lies above the best misfit can be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpctrip.study.calibrate.known import Known
from hpctrip.study.calibrate.points import Point, Times
from hpctrip.study.calibrate.runs import Runs, Values
from hpctrip.study.file import StudyFile
from hpctrip.study.grid import Entry
from hpctrip.study.ledger import Ledger
from hpctrip.study.pool import Pool
from hpctrip.study.run import make, refuse_failures
from hpctrip.study.studies import Study


@dataclass(frozen=True)
class Found:
    """What is known so far."""

    runs: Runs
    points: list[Point]
    """The best first; of equal ones, those that are known."""

    @property
    def best(self) -> Point | None:
        """The best point that reached every bar's target; where none did, that of the least bound."""
        known = [point for point in self.points if point.bars.known]
        return next((point for point in known if point.bars.exact), next(iter(known), None))

    @property
    def default(self) -> Point:
        """The inputs as they are."""
        return next(point for point in self.points if point.values == self.runs.default)

    @property
    def promising(self) -> list[Point]:
        """The points that may be better than the best one and are not known, the most promising first."""
        return [point for point in self._may_be_better if not point.bars.known]

    @property
    def unreached(self) -> list[Point]:
        """The points that may be better than the best one, had every bar reached its target."""
        return [point for point in self._may_be_better if point.bars.known]

    @property
    def _may_be_better(self) -> list[Point]:
        best = self.best
        if best is None or not best.bars.exact:
            return [point for point in self.points if point is not best and not point.bars.exact]
        return [
            point for point in self.points if not point.bars.exact and point.bars.misfit < best.bars.misfit
        ]


@dataclass(frozen=True)
class Search:
    """Makes runs and says what is known after each step."""

    runs: Runs
    jobs: int | None
    again: str
    """The command that goes on where it is interrupted."""
    say: Callable[[str], None]
    _entries: dict[str, list[Entry]] = field(default_factory=dict)
    """The runs of every ledger so far."""

    def steps(self, most_points: int) -> Iterator[Found]:
        """What is known before the dynamic bars are trained, and after each of up to `most_points` points; the
        defaults are the first. Raises InterruptedRun and HpctripError as runs do."""
        known = Known()
        targets = self._targets(known)
        fixed = self.runs.fixed_bars(targets)
        self._made("bars", [entry for entries in fixed.values() for entry in entries], known)
        times = Times(self.runs, known, targets)
        yield (found := self._found(times))
        tried: set[Values] = (
            set()
        )  # a point may stay unknown: where a bar follows the clock and the file does not say so
        for _ in range(most_points):
            default = [found.default] if not found.default.bars.known else []
            todo = [point for point in (*default, *found.promising) if point.values not in tried]
            if not todo:
                return
            values = todo[0].values
            tried.add(values)
            self._made("points", self.runs.at_point(values, todo[0].target), known)
            yield (found := self._found(times))

    def _found(self, times: Times) -> Found:
        points = [times.point(values) for values in self.runs.points]
        points.sort(key=lambda point: (point.bars.misfit, not point.bars.known))
        return Found(self.runs, points)

    def _targets(self, known: Known) -> dict[Values, float]:
        """The target accuracy of every world: the lowest of the best accuracies of any cohort size and seed. The first
        size is trained to its end; the others need no more than to reach what it reached."""
        first, *others = self.runs.file.sweep.tried(self.runs.asked.small)
        self.runs.sizes(
            dict.fromkeys(self.runs.worlds, "none"), others
        )  # a size that cannot be is refused now
        lowest = self._lowest(self.runs.sizes(dict.fromkeys(self.runs.worlds, "none"), [first]), known)
        for world, target in lowest.items():
            self.say(f"{self._called(world)}: {first} sites reach {target:.1%}")
        if others:
            found = self._lowest(self.runs.sizes(lowest, others), known)
            lowest = {world: min(target, found[world]) for world, target in lowest.items()}
        for world, target in lowest.items():
            self.say(f"{self._called(world)}: target accuracy {target:.1%}")
        return lowest

    def _lowest(self, sizes: Mapping[Values, Sequence[Entry]], known: Known) -> dict[Values, float]:
        self._made("sizes", [entry for entries in sizes.values() for entry in entries], known)
        pool = Pool(self.runs.asked.folder)
        return {
            world: min(float(pool.whole(entry).rounds["accuracy"].max()) for entry in entries)
            for world, entries in sizes.items()
        }

    def _made(self, name: str, entries: Sequence[Entry], known: Known) -> None:
        """Make what is missing, and take up what it trained; `name` is that of the ledger which tells of it."""
        pool, told = Pool(self.runs.asked.folder), self._entries.setdefault(name, [])
        told += entries
        ledger = Ledger(f"{self.runs.folder_name}/{name}", told, pool)
        study = Study(StudyFile(name=self.runs.file.name), ledger)
        make([study], None, self.jobs, 1, self.again)
        refuse_failures([study])
        for entry in entries:
            known.add(entry.given.experiment, pool.whole(entry))

    def _called(self, world: Values) -> str:
        keys = [self.runs.keys[place] for place in self.runs.learned]
        return ", ".join(f"{key} = {value}" for key, value in zip(keys, world, strict=True)) or "all points"
