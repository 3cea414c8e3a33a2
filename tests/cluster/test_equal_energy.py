"""PowerFlow is compared with a baseline at the same energy."""

import pytest

from hpctrip.base.inputs import validate
from hpctrip.cluster.equal_energy import counted_j, matched, with_eta
from hpctrip.cluster.scenario import ClusterScenario


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
    match = matched(fifo, target_j, hosts, precision=0.1)
    assert 0.8 * target_j < match.energy_j <= target_j
    again = with_eta(fifo, match.eta, hosts).simulator().run()
    assert counted_j(again, hosts) == match.energy_j and again.mean_jct_s == match.result.mean_jct_s


def test_too_little_energy_has_no_match_and_plenty_has_the_highest(fifo):
    assert matched(fifo, 1.0) is None
    assert matched(fifo, 1e12).eta == 4.0
