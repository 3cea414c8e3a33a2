"""PowerFlow is compared with a baseline at the same energy."""

from types import SimpleNamespace

import pytest

from hpctrip.cluster.equal_energy import HIGHEST, Front, counted_j, with_eta
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.inputs import validate


@pytest.mark.parametrize("hosts", [True, False])
def test_the_match_needs_nearly_as_much_and_never_more(hosts):
    tables = {
        "cluster": {"num_nodes": 2},
        "jobs": {"num_jobs": 8, "span_s": 1800.0, "median_s": 900.0, "longest_s": 1800.0, "largest": 8},
        "scheduler": {"kind": "fifo"},
    }
    fifo = validate(tables, ClusterScenario)
    target_j = counted_j(fifo.simulator().run(), hosts)
    match = Front(fifo, hosts, precision=0.1).best(target_j)
    assert 0.8 * target_j < match.energy_j <= target_j
    again = with_eta(fifo, match.eta, hosts).simulator().run()
    assert counted_j(again, hosts) == match.energy_j and again.mean_jct_s == match.result.mean_jct_s


@pytest.fixture
def stubbed(monkeypatch):
    """`stubbed(energy_j, jct_s)`: a front whose simulations are replaced by these functions of eta, and its etas."""

    def front(energy_j, jct_s):
        etas = []

        def run(eta):
            etas.append(eta)
            return SimpleNamespace(energy_j=energy_j(eta), mean_jct_s=jct_s(eta))

        def simulator(scenario):
            return SimpleNamespace(run=lambda: run(scenario.scheduler.eta))

        monkeypatch.setattr(ClusterScenario, "simulator", simulator)
        return Front(validate({}, ClusterScenario)), etas

    return front


@pytest.mark.parametrize(
    ("energy_j", "jct_s", "target_j", "low", "high"),
    [
        (lambda eta: eta, lambda eta: 1 / eta, 2.0, 1.99 / 1.01, 2.0),
        # the same energy on both sides of a bump, and faster behind it
        (lambda eta: 5.0 if 1 < eta < 3 else 1.0, lambda eta: 1 / eta, 2.0, HIGHEST - 1e-9, HIGHEST + 1e-9),
        # exactly as much, but for rounding
        (lambda eta: 2.0 * (1 + 1e-15), lambda eta: 1 / eta, 2.0, HIGHEST - 1e-9, HIGHEST + 1e-9),
        # more energy that makes no job faster
        (lambda eta: eta, lambda eta: abs(eta - 1), 6.0, 0.75, 1.25),
    ],
)
def test_the_fastest_within_the_energy_is_found(energy_j, jct_s, target_j, low, high, stubbed):
    front, _ = stubbed(energy_j, jct_s)
    assert low <= front.best(target_j).eta <= high


def test_a_second_target_simulates_only_what_is_new(stubbed):
    front, etas = stubbed(lambda eta: eta, lambda eta: 1 / eta)
    front.best(2.0)
    before = len(etas)
    front.best(2.0)
    assert len(etas) == before
    front.best(5.0)
    assert len(set(etas)) == len(etas) < 2 * before
    assert front.best(0.1) is None  # no eta needs so little
