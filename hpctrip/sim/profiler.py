"""The site profiler: the aggregator's observations of power and delay (paper Sec. 4)."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from pydantic import Field

from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds
from hpctrip.base.validate import numbers
from hpctrip.config.component import Component, config_key
from hpctrip.sim.forecast import PERSISTENCE, Forecast, Observations, newest_apart
from hpctrip.sim.quantities import BY_SIGNAL
from hpctrip.sim.rounds import History, longest_s
from hpctrip.sim.view import SiteView
from hpctrip.sim.world import World

_LARGEST = np.finfo(float).max
_NEGLIGIBLE = 1e-3  # observations whose smoothing weight has fallen below this are left out


class Profiler(Component):
    """Observes power and delay every `interval_s`. The default is exact, at every round's start.

    A view is a pure function of the clock, the history and the seed: noise comes from the stream (seed, "profiler",
    observation), and smoothing is recomputed from past observations, so nothing is checkpointed.
    """

    interval_s: Seconds = Field(0.0, ge=0)
    """Simulated time between observations; 0: at every round's start."""
    power_noise: float = Field(0.0, ge=0, le=10)
    """Standard deviation of the additive error on a power fraction (the result is clipped to 0..1)."""
    delay_noise: float = Field(0.0, ge=0, le=10)
    """Standard deviation of the log of the multiplicative error on a communication delay L_i."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Weight of the past in an exponential moving average over observations; 0: only the newest."""

    def view(
        self,
        world: World,
        clock_s: float,
        history: History,
        work_s: np.ndarray,
        seed: int,
        target_accuracy: float = math.nan,
        forecast: Forecast = PERSISTENCE,
    ) -> SiteView:
        """The view at `clock_s`; `work_s` is c_i of all sites [N]. `forecast` predicts the mean power over as long as
        the last round computed. Signals of the grid are published, so they are seen as they are."""
        depth = 1 if self.smoothing == 0 else 1 + int(np.log(_NEGLIGIBLE) / np.log(self.smoothing))
        power, comm_s, weights = 0.0, 0.0, 0.0
        for age, (index, time_s) in enumerate(self._observations(clock_s, history, depth)[::-1]):
            weight = self.smoothing**age
            seen_power, seen_comm_s = self._observe(world, index, time_s, seed)
            power, comm_s = power + weight * seen_power, comm_s + weight * seen_comm_s
            weights += weight
        place, shape = config_key("profiler", self), (len(world),)
        power = numbers(power / weights, shape, 0.0, 1.0, place, "the power fractions that it sees")
        span_s = longest_s(history.last.cohort.compute_s) if history.last else 0.0
        past = Observations(
            clock_s,
            power,
            lambda span_s, apart_s: self._observed(world, clock_s, history, seed, span_s, apart_s),
            world.mean_power_fraction,
        )
        power = _expected(past, span_s, forecast, world)
        # the aggregator keeps the accounts, so it knows exactly who has spent a budget
        power = np.where(world.out_of_budget, 0.0, power)
        busy_w, waiting_w = world.hardware.draw_w(power)
        links, transfers = world.links, world.transfers(clock_s)
        return SiteView(
            power_fraction=power,
            throughput_fraction=world.hardware.throughput(power),
            comm_s=numbers(comm_s / weights, shape, 0.0, _LARGEST, place, "the delays that it sees"),
            distance_m=world.distance_m,
            work_s=work_s,
            update_bytes=world.update_bytes,
            available_s=world.available_s(clock_s),
            pauses_s=() if forecast.knows_events else world.pauses_s(clock_s),
            queue_s=history.expected_queue_s(len(world)) if world.has_queues else np.float64(0),
            link_s=transfers.link_s,
            region=transfers.region,
            uplink_s=transfers.uplink_s,
            all_reduce_s=partial(links.all_reduce_s, num_bytes=world.update_bytes, clock_s=clock_s)
            if links.all_reduces
            else None,
            clock=world.timing.clock,
            deadline_s=world.deadline_s,
            busy_w=busy_w,
            waiting_w=waiting_w,
            released=world.is_released,
            comm_energy_j=world.comm_energy_j,
            full_power_w=world.hardware.mean_full_power_w,
            clock_s=clock_s,
            target_accuracy=target_accuracy,
            **{BY_SIGNAL[table].per_kwh: signal.at(clock_s) for table, signal in world.signals.items()},
        )

    def _observed(
        self, world: World, clock_s: float, history: History, seed: int, span_s: float, apart_s: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(times [m], power fractions [m, N]) of the observations of the last `span_s` seconds, `apart_s` apart."""
        observations = self._observations(clock_s, history)
        times_s = np.array([time_s for _, time_s in observations])
        indices = newest_apart(times_s, span_s, apart_s)
        return times_s[indices], np.stack([self._observe(world, *observations[i], seed)[0] for i in indices])

    def _observations(self, clock_s: float, history: History, num: int = 10**9) -> list[tuple[int, float]]:
        """(index, time) of the newest `num` of the observations made so far, oldest first."""
        if self.interval_s == 0:
            times = [row.clock_start_s for row in history.rows[-num:]] + [clock_s]
            return list(enumerate(times, len(history) + 1 - len(times)))[-num:]
        newest = int(clock_s // self.interval_s)
        oldest = max(0, newest - min(num - 1, 10_000))  # far beyond any smoothing that _NEGLIGIBLE leaves in
        return [(index, index * self.interval_s) for index in range(oldest, newest + 1)]

    def _observe(self, world: World, index: int, time_s: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        power, comm_s = world.power_fraction(time_s), world.transfers(time_s).alone_s
        if self.power_noise or self.delay_noise:
            rng = stream(seed, "profiler", index)
            power_error, comm_error = rng.standard_normal((2, len(world)))
            power = np.clip(power + self.power_noise * power_error, 0.0, 1.0)
            with np.errstate(over="ignore", invalid="ignore"):  # `view` names a delay that is not finite
                comm_s = comm_s * np.exp(self.delay_noise * comm_error)
        return power, comm_s


def _expected(past: Observations, span_s: float, forecast: Forecast, world: World) -> np.ndarray:
    """The mean power fractions [N] that are expected over the coming `span_s` seconds, with the events announced."""
    power = forecast.power_fraction(past, span_s)
    power = numbers(
        power, past.power.shape, 0.0, 1.0, config_key("forecast", forecast), "the power fractions"
    )
    if forecast.knows_events:
        return power
    return np.minimum(power * world.announced(past.now_s, span_s), 1.0)
