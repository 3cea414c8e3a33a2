"""The contract that every power model keeps."""

import math

import numpy as np
import pytest

from hpctrip.joint.cluster_power import ClusterPower
from hpctrip.sim.power import POWER_MODELS

TIMES_S = (0.0, 299.0, 300.0, 86_400.0, 5e6)


@pytest.fixture(params=sorted({*POWER_MODELS, "cluster"}))
def model(request, tmp_path):
    if request.param != "cluster":
        return POWER_MODELS[request.param]()
    site = tmp_path / "site.toml"
    site.write_text("[cluster]\nnum_nodes = 2\n[jobs]\nnum_jobs = 20\nspan_s = 7200\nlargest = 8\n")
    return ClusterPower(path=str(site), num_clusters=2)


def test_every_site_has_a_power_fraction_between_0_and_1_at_every_time(model):
    supply = model.supply(num_sites=7, seed=3)
    for clock_s in TIMES_S:
        fraction = supply.at(clock_s)
        assert fraction.shape == (7,) and fraction.dtype == np.float64
        assert ((fraction >= 0) & (fraction <= 1)).all()


def test_the_same_seed_gives_the_same_power(model):
    one, again = (model.supply(num_sites=7, seed=3) for _ in range(2))
    for clock_s in TIMES_S:
        assert np.array_equal(one.at(clock_s), again.at(clock_s))


def test_power_depends_on_time_alone_not_on_what_was_asked_before(model):
    supply = model.supply(num_sites=7, seed=3)
    forward = [supply.at(clock_s).copy() for clock_s in TIMES_S]
    backward = [supply.at(clock_s).copy() for clock_s in reversed(TIMES_S)]
    assert np.array_equal(forward, backward[::-1])


def test_power_holds_within_a_step(model):
    supply = model.supply(num_sites=7, seed=3)
    step_s = supply.step_s if math.isfinite(supply.step_s) else 1e9
    assert step_s > 0
    for step in (0, 1, 1000):
        start, end = step * step_s, math.nextafter((step + 1) * step_s, 0)
        assert np.array_equal(supply.at(start), supply.at(end))


def test_facts_are_one_number_per_site(model):
    for name, facts in model.supply(num_sites=7, seed=3).describe().items():
        assert np.asarray(facts).shape == (7,), name


def test_the_supply_says_whether_it_was_made_up(model):
    assert (
        model.supply(num_sites=7, seed=3).synthetic is True
    )  # every default needs no file: all are synthetic
