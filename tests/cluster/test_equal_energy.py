"""PowerFlow is compared with a baseline at the same energy."""

from types import SimpleNamespace

import pytest

from hpctrip.cluster.equal_energy import HIGHEST, Front, counted_j, with_eta
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.inputs import validate


@pytest.fixture(scope="module")
def fifo():
    tables = {
        "cluster": {"num_nodes": 2},
        "jobs": {"num_jobs": 8, "span_s": 1800.0, "median_s": 900.0, "longest_s": 1800.0, "largest": 8},
        "scheduler": {"kind": "fifo"},
    }
    return validate(tables, ClusterScenario)


@pytest.mark.parametrize("hosts", [True, False])
def test_the_match_needs_nearly_as_much_and_never_more(fifo, hosts):
    target_j = counted_j(fifo.simulator().run(), hosts)
    match = Front(fifo, hosts, precision=0.1).best(target_j)
    assert 0.8 * target_j < match.energy_j <= target_j
    again = with_eta(fifo, match.eta, hosts).simulator().run()
    assert counted_j(again, hosts) == match.energy_j and again.mean_jct_s == match.result.mean_jct_s


def test_too_little_energy_has_no_match(fifo):
    assert Front(fifo).best(1.0) is None


class StubbedFront:
    """A front whose simulations are replaced by functions of eta for the energy and the completion time."""

    def __init__(self, energy_j, jct_s):
        self.etas = []

        def simulate(scenario):
            eta = scenario.scheduler.eta
            self.etas.append(eta)
            return SimpleNamespace(energy_j=energy_j(eta), mean_jct_s=jct_s(eta))

        self.front = Front(validate({}, ClusterScenario), simulate=simulate)


def test_the_best_is_found_where_the_energy_passes_the_target():
    stub = StubbedFront(energy_j=lambda eta: eta, jct_s=lambda eta: 1 / eta)
    assert 1.99 / 1.01 < stub.front.best(2.0).eta <= 2.0


def test_an_energy_that_falls_again_hides_nothing():
    # the same energy on both sides of a bump, and faster behind it
    stub = StubbedFront(energy_j=lambda eta: 5.0 if 1 < eta < 3 else 1.0, jct_s=lambda eta: 1 / eta)
    assert stub.front.best(2.0).eta == pytest.approx(HIGHEST)


def test_more_energy_that_makes_nobody_faster_is_not_used():
    stub = StubbedFront(energy_j=lambda eta: eta, jct_s=lambda eta: abs(eta - 1))
    assert stub.front.best(6.0).eta == pytest.approx(1.0, rel=0.25)


def test_a_second_target_simulates_only_what_is_new():
    stub = StubbedFront(energy_j=lambda eta: eta, jct_s=lambda eta: 1 / eta)
    stub.front.best(2.0)
    before = len(stub.etas)
    stub.front.best(2.0)
    assert len(stub.etas) == before
    stub.front.best(5.0)
    assert len(set(stub.etas)) == len(stub.etas) < 2 * before
