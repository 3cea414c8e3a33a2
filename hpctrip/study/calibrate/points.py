"""The bars at every point, in hours, as far as what was trained tells them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpctrip.app.experiment import Experiment
from hpctrip.base.units import HOUR_S
from hpctrip.study.calibrate.fit import Bars
from hpctrip.study.calibrate.known import Known, Reached
from hpctrip.study.calibrate.runs import Runs, Values, at


@dataclass(frozen=True)
class Point:
    """One choice of all constants, and what the bars are with it."""

    values: Values
    target: float
    """The accuracy in force."""
    hours: np.ndarray
    """Of every bar, [n]: the geometric mean over the seeds, or the least that it can be; NaN: not known."""
    bars: Bars

    def hours_text(self, bar: int) -> str:
        """The hours of a bar, for reading."""
        if math.isnan(self.hours[bar]):
            return "-"
        return f"{'> ' if self.bars.at_least[bar] else ''}{self.hours[bar]:.3g}"


@dataclass
class Times:
    """Asks what is known of the bars, and remembers the answers, which do not change."""

    runs: Runs
    known: Known
    targets: Mapping[Values, float]
    """{what training sees of the constants: the target accuracy}"""
    _experiments: dict[Values, Mapping[str, Sequence[Experiment]]] = field(default_factory=dict)
    _answers: dict[tuple[Values, str, int], Reached] = field(default_factory=dict)

    def point(self, values: Values) -> Point:
        """The bars with these constants."""
        file = self.runs.file
        found = [self._of_bar(values, bar.label) for bar in file.bar]
        hours = np.array([_hours(seeds) for seeds in found])
        paper = np.array([bar.hours for bar in file.bar])
        at_least = np.array([any(one is not None and not one.target for one in seeds) for seeds in found])
        bars = Bars(np.log(hours / paper), at_least & np.isfinite(hours))
        return Point(values, self.targets[self.runs.learned_of(values)], hours, bars)

    def _of_bar(self, values: Values, label: str) -> list[Reached | None]:
        """A bar's seeds."""
        world = self.runs.learned_of(values)
        if world not in self._experiments:
            self._experiments[world] = self.runs.bars(world)
        constants = dict(zip(self.runs.keys, values, strict=True))
        asked = {key: value for i, (key, value) in enumerate(constants.items()) if i not in self.runs.learned}
        asked["stop.target_accuracy"] = self.targets[world]
        found = []
        for number, experiment in enumerate(self._experiments[world][label]):
            place = (values, label, number)
            if place not in self._answers and (one := self.known.reached(at(experiment, asked))):
                self._answers[place] = one
            found.append(self._answers.get(place))
        return found


def _hours(seeds: Sequence[Reached | None]) -> float:
    times_s = [one.clock_s for one in seeds if one is not None]
    if len(times_s) < len(seeds):
        return math.nan
    return float(np.exp(np.mean(np.log(times_s)))) / HOUR_S
