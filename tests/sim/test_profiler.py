from dataclasses import replace

import numpy as np
import pytest
from worlds import Steps, sites_at
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import History


@pytest.fixture
def world():
    """Two sites whose power changes every 100 s: that of the first rises by a tenth, that of the second stays."""
    power = Steps(fractions=[[tenth / 10 for tenth in range(1, 11)], [0.5] * 10], step_s=100.0)
    return build_world(sites_at(2, 1e6, 5e6), network=DistanceNetwork(), power=power)


def power_seen(profiler, world, clock_s, history=None, seed=0):
    return profiler.view(world, clock_s, history or History(), np.ones(2), seed).power_fraction


def test_the_default_is_exact_at_every_round(world):
    seen = Profiler().view(world, 250.0, History(), np.ones(2), 0)
    assert seen.power_fraction == pytest.approx([0.3, 0.5])
    assert (seen.comm_s == world.transfers(0.0).alone_s).all() and seen.update_bytes == 1.5e9


def test_between_observations_the_view_is_old(world):
    profiler = Profiler(interval_s=300)
    assert power_seen(profiler, world, 299.0) == pytest.approx([0.1, 0.5])
    assert power_seen(profiler, world, 301.0) == pytest.approx([0.4, 0.5])


def test_smoothing_is_an_exponential_average_over_the_observations(world):
    """Observations 0.1, 0.2, 0.3 with weights 1/4, 1/2, 1."""
    seen = power_seen(Profiler(interval_s=100, smoothing=0.5), world, 200.0)
    assert seen == pytest.approx([(0.25 * 0.1 + 0.5 * 0.2 + 0.3) / 1.75, 0.5])


def test_without_an_interval_the_rounds_starts_are_the_observations(world, history):
    """Rounds started at 0 and 100 s; now is 200 s."""
    seen = power_seen(Profiler(smoothing=0.5), world, 200.0, history((1, 0, 0.1), (1, 0, 0.2)))
    assert seen == pytest.approx([(0.25 * 0.1 + 0.5 * 0.2 + 0.3) / 1.75, 0.5])


def test_noise_has_a_name_and_not_a_history(world):
    profiler = Profiler(interval_s=100, power_noise=0.1, delay_noise=0.1)
    first = profiler.view(world, 250.0, History(), np.ones(2), 7)
    again = profiler.view(world, 299.0, History(), np.ones(2), 7)
    assert (first.power_fraction == again.power_fraction).all() and (first.comm_s == again.comm_s).all()
    assert (power_seen(profiler, world, 250.0, seed=8) != first.power_fraction).all()
    assert (power_seen(profiler, world, 350.0, seed=7)[1] != first.power_fraction[1]).all()


def test_noisy_power_stays_a_fraction_and_noisy_delay_positive(world):
    for seed in range(50):
        seen = Profiler(power_noise=5.0, delay_noise=3.0).view(world, 0.0, History(), np.ones(2), seed)
        assert ((seen.power_fraction >= 0) & (seen.power_fraction <= 1)).all() and (seen.comm_s > 0).all()


def test_what_is_seen_and_what_the_network_says_are_finite_or_named(world):
    history, work_s = History(), np.ones(2)
    with pytest.raises(InputError, match=r"^profiler: gave the delays that it sees with \[\d\] = inf"):
        Profiler().model_copy(update={"delay_noise": 1e6}).view(world, 0.0, history, work_s, seed=0)

    class Own(DistanceNetwork):
        def links(self, distance_m, columns):
            return replace(super().links(distance_m, columns), propagation_s=-distance_m)

    where = r"^network.kind = 'distance' \(.*test_profiler.py\): gave the communication delays in s "
    with pytest.raises(InputError, match=where):
        build_world(sites_at(3, 1e6), network=Own())
