"""Windows: sites that are provisioned while a signal is good, and released while it is not. Shapes: N sites, Z zones of
the signal, G gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.series import Signal, remembered, spans
from hpctrip.base.units import Seconds
from hpctrip.sim.availability.base import AVAILABILITY, Availability, AvailabilityModel, Surroundings
from hpctrip.sim.rounds import History, RoundRow, Status
from hpctrip.sim.timing import LONGEST_ROUND_S

_MOST_LOOKED_AT = 10_000
"""Changes of a signal among which a window must open."""


@AVAILABILITY.add
class Window(AvailabilityModel):
    """A site may train while a signal is below a bound, or above it. From then on it is provisioned, which takes
    `provision_s`. When the signal passes the bound again, the site is marked, and `hold_s` later it is released, unless
    the signal comes back before. A site that is provisioned and does not train waits at idle power (accounts.waiting);
    one that is released draws none. A round in which nobody can be asked ends when somebody can.
    """

    kind = "window"
    signal: Literal["carbon", "price", "power"] = "carbon"
    """[carbon] or [price] at the site, or the power fraction that its supply gives."""
    below: float | None = None
    """The window is open while the signal is below this, in its unit for a kilowatt-hour."""
    above: float | None = None
    """The window is open while the signal is above this: usual for power."""
    between: Literal["steps", "linear"] = "steps"
    """Between the values of carbon and price: each holds until the next, or the signal is linear."""
    provision_s: Seconds = Field(0.0, ge=0, le=LONGEST_ROUND_S)
    """From the opening until the site can train."""
    hold_s: Seconds = Field(0.0, ge=0, le=LONGEST_ROUND_S)
    """From the mark until the site is released."""
    release: Literal["round", "now"] = "round"
    """round: at the first end of a round from then on at which the site has no flight under way, so that no work is cut
    off. now: at once; the site goes on when it is provisioned again."""
    notice_s: Seconds = Field(0.0, ge=0, le=LONGEST_ROUND_S)
    """How far ahead the signal is known to policies (`SiteView.available_s`)."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: policies see how long an announced release in the middle of a round stops the work."""
        return 2 if self.release == "now" and self.notice_s else 1

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if (self.below is None) == (self.above is None):
            raise ValueError("give either below or above")
        if self.signal == "power" and self.between == "linear":
            raise ValueError("power is constant between its changes: leave out between")
        return self

    def availability(self, place: str, around: Surroundings) -> Windows:
        """The windows of the sites. InputError where the signal is not set, or no window opens within the data."""
        if self.signal == "power":
            supply = around.supply
            opening = Opening(lambda clock_s: self._is_open(supply.at(clock_s)), supply.next_change_s)
            zone, ends_s = np.arange(around.num_sites), supply.ends_s
        else:
            signal = around.signals[self.signal]
            if not signal.is_known:
                problem = f"needs the signal [{self.signal}]"
                raise InputError(f"{place}.signal", problem, f"set {self.signal}.kind, e.g. csv")
            zone, ends_s = signal.zone, signal.until_s
            series = [self._opening(values, ends_s == np.inf) for values in signal.series]
            zones = replace(signal, series=series, zone=np.arange(len(series)))
            opening = Opening(lambda clock_s: zones.at(clock_s) > 0, remembered(zones.next_change_s))
        looked_at = islice(spans(0.0, opening.next_change_s), _MOST_LOOKED_AT)
        looked_at = takewhile(lambda span: span[0] < min(ends_s, LONGEST_ROUND_S), looked_at)
        if not any(opening.at(at_s)[zone].any() for _, _, at_s in looked_at):
            bound = f"below = {self.below:g}" if self.above is None else f"above = {self.above:g}"
            raise InputError(
                f"{place}.{bound}",
                f"no window ever opens: [{self.signal}] stays beyond it at every site",
                "move it",
            )
        return Windows(self, place, Gaps(opening, self.hold_s, ends_s), zone)

    def _is_open(self, values: np.ndarray) -> np.ndarray:
        """Whether the window is open at these values."""
        return values < self.below if self.above is None else values > self.above

    def _opening(self, signal: Signal, wraps: bool) -> Signal:
        """1 while the window is open at a zone's signal, else 0, with the exact times at which that changes."""
        times_s, is_open = signal.start_s, self._is_open(signal.value)
        if self.between == "linear" and len(times_s) > 1:
            bound = self.below if self.above is None else self.above
            next_value = np.append(signal.value[1:], signal.value[0] if wraps else signal.value[-1])
            passes = np.flatnonzero(is_open != self._is_open(next_value))
            steps_s = np.diff(times_s, append=signal.period_s)[passes]
            share = (bound - signal.value[passes]) / (next_value - signal.value)[passes]
            times_s = np.append(times_s, times_s[passes] + share * steps_s)
            is_open = np.append(is_open, ~is_open[passes])
            order = np.argsort(times_s, kind="stable")
            times_s, is_open = times_s[order], is_open[order]
            last = np.append(np.diff(times_s) > 0, True) & (times_s < signal.period_s)
            times_s, is_open = times_s[last], is_open[last]
        changes = np.append(True, np.diff(is_open))
        return Signal(times_s[changes], is_open[changes].astype(np.float64), signal.period_s)


class Opening(NamedTuple):
    """Whether windows are open, with the contract of base/series.py: [Z] bool of the zones of a signal, or of sites."""

    at: Callable[[float], np.ndarray]
    next_change_s: Callable[[float], float]


class Gaps:
    """The times in which the signal alone would leave zones released: from `hold_s` after it closes until it opens.
    Before time 0 each zone has one, of its own number; the others are numbered in the order in which they begin.

    The list is saved work: it reaches beyond the simulated time, and one of any other length gives the same answers.
    """

    def __init__(self, opening: Opening, hold_s: float, ends_s: float):
        self.next_change_s, self.hold_s = opening.next_change_s, hold_s
        self._opening, self._ends_s = opening, ends_s
        self._spans, self._known_s = spans(0.0, opening.next_change_s), 0.0
        self.num_zones = num_zones = len(opening.at(0.0))
        self.zone = np.arange(num_zones)
        self.start_s, self.end_s = np.full(num_zones, -np.inf), np.full(num_zones, np.inf)
        self._closed_s = np.full(num_zones, -np.inf)
        """When each zone closed; inf: it is open, [Z]."""
        self._present = np.arange(num_zones)
        """The gap that each zone is in, [Z]; -1: none."""

    def until(self, clock_s: float) -> Gaps:
        """The same, complete up to a time, or the end of the data."""
        clock_s = min(clock_s, np.nextafter(self._ends_s, 0))
        while self._known_s <= clock_s:
            begin_s, self._known_s, at_s = next(self._spans)
            is_open = self._opening.at(min(at_s, np.nextafter(self._ends_s, 0)))
            ended = np.flatnonzero(is_open & (self._present >= 0))
            self.end_s[self._present[ended]] = begin_s
            self._present[ended] = -1
            self._closed_s = np.where(is_open, np.inf, np.minimum(self._closed_s, begin_s))
            starts_s = self._closed_s + self.hold_s
            begun = np.flatnonzero((self._present < 0) & (starts_s < self._known_s))
            begun = begun[np.argsort(starts_s[begun], kind="stable")]
            self._present[begun] = len(self.zone) + np.arange(len(begun))
            self.zone = np.append(self.zone, begun)
            self.start_s = np.append(self.start_s, starts_s[begun])
            self.end_s = np.append(self.end_s, np.full(len(begun), np.inf))
        return self

    def latest(self, clock_s: float) -> np.ndarray:
        """The last gap of each zone that has begun by a time, [Z]."""
        latest = np.zeros(len(self._present), np.int64)
        begun = np.flatnonzero(self.start_s <= clock_s)
        np.maximum.at(latest, self.zone[begun], begun)
        return latest


class Windows(Availability):
    """Sites of some zones that are provisioned and released as the component `model` says."""

    is_awaited = provisions = True

    def __init__(self, model: Window, place: str, gaps: Gaps, zone: np.ndarray):
        super().__init__(len(zone))
        self._model, self._place, self._gaps, self._zone = model, place, gaps, zone
        self._gap, self._releases = zone, ()
        """Where sites are released at ends of rounds: the gap in which each was last, [N], and all releases but the
        first, as (time, sites, their gaps before)."""

    def _with(self, gap: np.ndarray, releases: Sequence[Any], sites: Any = slice(None)) -> Windows:
        """The windows of `sites` after these releases."""
        windows = Windows(self._model, self._place, self._gaps, self._zone[sites])
        windows._gap, windows._releases = gap[sites], releases
        return windows

    def since_s(self, clock_s: float) -> np.ndarray:
        """When each site was provisioned, or, where it is released, will be as far as that is known, [N]."""
        gaps = self._gaps.until(clock_s)
        if self._model.release == "now":
            return gaps.end_s[gaps.latest(clock_s)[self._zone]]
        gap = self._gap
        for released_s, sites, before in self._releases[::-1]:
            if clock_s >= released_s:
                break
            gap = gap.copy()
            gap[sites] = before
        return gaps.end_s[gap]

    def at(self, clock_s: float) -> np.ndarray:
        """1 where a site has been provisioned, else 0, [N]."""
        return (self.since_s(clock_s) + self._model.provision_s <= clock_s).astype(np.float64)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which a site may be provisioned, ready or released; inf: never."""
        since_s, gaps = self.since_s(clock_s), self._gaps
        is_now = self._model.release == "now"
        released_s = gaps.start_s if is_now else [time_s for time_s, *_ in self._releases]
        times_s = np.concatenate([since_s, since_s + self._model.provision_s, released_s])
        return float(min(times_s[times_s > clock_s].min(initial=np.inf), gaps.next_change_s(clock_s)))

    def among(self, sites: np.ndarray, until_s: float) -> Windows:
        """The windows of these sites [n], which are numbered from 0, in the present round."""
        return self._with(self._gap, (), sites)

    def after(self, history: History) -> Windows:
        """The windows as the ends of rounds have left them."""
        if self._model.release == "now":
            return self
        key = (self._place, self._model, self.num_sites)
        return self._with(*history.running(key, (self._zone, ()), self._released))

    def _released(self, value: Any, rows: Sequence[RoundRow]) -> Any:
        """(gaps, releases) after these rounds, too."""
        gap, releases = value
        for row in rows:
            gaps = self._gaps.until(row.clock_s)
            latest = gaps.latest(row.clock_s)
            present = np.where(gaps.end_s[latest] > row.clock_s, latest, -1)[self._zone]
            leaves = (present >= 0) & (gaps.end_s[gap] <= row.clock_s)
            leaves[row.cohort.site[row.cohort.status == Status.UNDER_WAY]] = False
            if len(sites := np.flatnonzero(leaves)):
                releases = (*releases, (row.clock_s, sites, gap[sites]))
                gap = gap.copy()
                gap[sites] = present[sites]
        return gap, releases

    def falls_s(self, clock_s: float) -> np.ndarray:
        """When each site is released first, by the signal as far as it is known, [N]; inf: that is not known."""
        first_s = np.full(self._gaps.num_zones, np.inf)
        gaps, ahead = self._announced(clock_s)
        np.minimum.at(first_s, gaps.zone[ahead], gaps.start_s[ahead])
        return first_s[self._zone]

    def pauses_s(self, clock_s: float) -> list[np.ndarray]:
        """From each release until the site is provisioned again; where that is not known, as far as the signal is."""
        pauses: list[np.ndarray] = []
        gaps, ahead = self._announced(clock_s)
        while self._model.release == "now" and len(ahead):
            zones, first = np.unique(gaps.zone[ahead], return_index=True)
            start_s, end_s = gaps.start_s[ahead[first]], gaps.end_s[ahead[first]]
            end_s = np.maximum(np.minimum(end_s, clock_s + self._model.notice_s), start_s)
            pause = np.full((2, gaps.num_zones), np.inf)
            pause[:, zones] = start_s, end_s + self._model.provision_s
            pauses.append(pause[:, self._zone])
            ahead = np.delete(ahead, first)
        return pauses

    def _announced(self, clock_s: float) -> tuple[Gaps, np.ndarray]:
        """The gaps, and the numbers of those ahead whose beginning follows from the signal as far as it is known."""
        known_s, hold_s = clock_s + self._model.notice_s, self._model.hold_s
        gaps = self._gaps.until(known_s + hold_s)
        return gaps, np.flatnonzero((gaps.start_s > clock_s) & (gaps.start_s - hold_s <= known_s))
