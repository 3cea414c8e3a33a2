"""Runs over links between regions: trained, planned, resumed, timed anew, replayed, and refused where only a clock."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from hpctrip.base.rows import is_measured
from hpctrip.plan.plan import first_rounds
from hpctrip.ranks.base import Ranks
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.host import Host
from hpctrip.runner.replay import replay

LINKS = "from,to,rtt_ms,bandwidth_gbps\na,a,1,10\nb,b,1,5\na,b,80,1\nb,a,90,0.5\n"
DATED = """time,from,to,rtt_ms,bandwidth_gbps
2026-11-29 00:00,a,a,1,10
2026-11-29 00:00,b,b,1,5
2026-11-29 00:00,a,b,80,1
2026-11-29 00:00:00,b,a,90,0.5
2026-11-29 00:00:20,b,a,70,0.1
2026-11-29 00:00:40,b,a,90,0.9
"""
STEADY = DATED.replace("70,0.1", "90,0.5").replace("0.9", "0.5")
SITES = "name,region\nn1,a\nn2,b\nn3,b\nn4,a\n"


def overrides(*lines):
    """`-o` arguments."""
    return [f"-o{line}" for line in lines]


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    """The lines of an input of four sites in two regions."""
    folder = tmp_path_factory.mktemp("regions")
    for name, text in {"links": LINKS, "dated": DATED, "steady": STEADY}.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "sites.csv").write_text(SITES)
    return (
        f"sites={{kind='csv', path='{folder / 'sites.csv'}'}}",
        "network={kind='matrix', aggregator='a'}",
        f"network.path='{folder / 'links.csv'}'",
        "policy.kind=all",
        "stop.target_accuracy=none",
        "stop.max_rounds=3",
    )


def table(regions, name):
    """The line for another table of links."""
    return regions[2].replace("links.csv", name)


@pytest.fixture(scope="module", params=["star", "ring", "star, dated.csv", "ring, dated.csv"])
def run(request, trained, regions):
    """A run of them, whose updates take one way or the other, some over links that change in every round."""
    exchange, *name = request.param.split(", ")
    return trained(*regions, f"network.exchange={exchange}", *(table(regions, each) for each in name))


def test_the_file_has_the_regions_and_a_replay_gives_it_again(run):
    assert run.sites["region"].tolist() == ["a", "b", "b", "a"]
    folder = Path(run.input["network"]["path"]).parent
    assert verify(run) == [] and replay(run, data=[str(folder)]) == []
    ring, k = run.input["network"]["exchange"] == "ring", len(run.sites)
    sent = run.input["accounts"]["network_j_per_gb"] * run.meta["update_bytes"] / 1e9
    assert run.rounds["comm_energy_j"].tolist() == pytest.approx([sent * (2 * (k - 1) if ring else k)] * 3)


UPLINKS = (
    "network.shared_uplinks=true",
    "rounds={kind='buffered', num=1, concurrency=4}",
    "stop.max_rounds=6",
)


@pytest.fixture(scope="module")
def queued(trained, regions):
    """A run whose updates from b queue for one uplink over several rounds."""
    return trained(*regions, *UPLINKS)


@pytest.mark.mpi
def test_uplinks_are_queued_for_alike_on_any_number_of_ranks(
    queued, hpctrip, tiny, launch, regions, tmp_path
):
    cohorts = queued.cohorts
    waits = cohorts["uplink_free_s"] - cohorts["start_s"] - cohorts["compute_s"]
    alone_s = 8 * queued.meta["update_bytes"] / 5e8
    assert (waits > alone_s + 1).any() and (cohorts["age"] > 0).any()
    folder = Path(queued.input["network"]["path"]).parent
    assert verify(queued) == [] and replay(queued, data=[str(folder)]) == []
    out = tmp_path / "run.h5"
    begun = launch(3, "run", tiny, *overrides(*regions, *UPLINKS, "stop.max_rounds=3"), "--out", out)
    assert begun.code == 0, begun.err
    assert hpctrip("resume", out, "-o", "stop.max_rounds=6").code == 0
    assert diff(open_run(out), queued) == []


def test_the_plan_has_the_times_of_the_run(run):
    experiment = experiment_of(run.input)
    task = experiment.workload.task(experiment.seed)
    host = Host(experiment, experiment.checked_num_sites(), task, Ranks(), torch.device("cpu"))
    planned = [each.row for each in first_rounds(Aggregator(host), 3)]
    assert [row.clock_s for row in planned] == run.rounds["clock_s"].tolist()
    assert [row.energy_j for row in planned] == pytest.approx(run.rounds["energy_j"].tolist(), rel=1e-12)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(run, hpctrip, tiny, tmp_path, regions):
    out = tmp_path / "run.h5"
    network = [f"network.{key}='{run.input['network'][key]}'" for key in ("exchange", "path")]
    begun = hpctrip("run", tiny, *overrides(*regions, *network, "stop.max_rounds=1"), "--out", out)
    assert begun.code == 0, begun.err
    assert hpctrip("resume", out, "-o", "stop.max_rounds=3").code == 0
    assert diff(open_run(out), run) == []


def test_another_exchange_only_takes_another_time(hpctrip, trained, regions, tmp_path):
    star, ring = trained(*regions, "network.exchange=star"), trained(*regions, "network.exchange=ring")
    ended = hpctrip("retime", star.path, "-o", "network.exchange=ring", "--out", tmp_path / "ring.h5")
    assert ended.code == 0 and "3 taken, 0 trained" in ended.out, ended
    assert diff(open_run(tmp_path / "ring.h5"), ring) == []


def test_links_that_change_only_take_another_time(hpctrip, trained, regions, tmp_path):
    """And a table with dates, of links that never change, is one without."""
    plain, dated = trained(*regions), trained(*regions, table(regions, "dated.csv"))
    steady = trained(*regions, table(regions, "steady.csv"))
    assert steady.meta["params_digest"] == plain.meta["params_digest"]
    pd.testing.assert_frame_equal(
        *(of.rounds.loc[:, [not is_measured(name) for name in of.rounds]] for of in (steady, plain)),
        check_exact=True,
    )
    assert (dated.rounds["clock_s"] != plain.rounds["clock_s"]).all()
    lines = overrides(table(regions, "dated.csv"))
    ended = hpctrip("retime", plain.path, *lines, "--out", tmp_path / "dated.h5")
    assert ended.code == 0 and "3 taken, 0 trained" in ended.out, ended
    assert diff(open_run(tmp_path / "dated.h5"), dated) == []


def test_a_server_in_each_region_is_planned_but_not_trained_with(hpctrip, tiny, regions, tmp_path):
    lines, out = overrides(*regions, 'network.exchange="two-level"'), tmp_path / "run.h5"
    refused = hpctrip("run", tiny, *lines, "--out", out)
    refused.check_refused(['network.exchange = "two-level": is a clock only', "use hpctrip plan"])
    assert not out.exists()
    assert hpctrip("plan", tiny, *lines, "--samples-per-second", "10").code == 0


def test_a_run_ends_with_its_samples(run, trained, regions):
    """The budget of tokens of runs that are compared; the round that reaches it counts."""
    each = int(run.rounds["num_samples"][0])
    ended = trained(*regions, f"stop.max_samples={each + 1}")
    assert len(ended.rounds) == 2 and ended.meta["stop_reason"] == f"max_samples = {each + 1}"
