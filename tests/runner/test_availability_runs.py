"""Sites that come, go and wait, in real runs: any number of ranks, resumed, replayed, reused, reported."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hpctrip.base.errors import InputError
from hpctrip.config.plugins import Plugin
from hpctrip.figures import FIGURES
from hpctrip.plan.plan import first_rounds
from hpctrip.ranks.base import Ranks
from hpctrip.record import event_report
from hpctrip.record.diff import diff
from hpctrip.record.event_report import Event, by_event, mean_draw_w, sentence
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import experiment_of, read_input
from hpctrip.runner.host import Host
from hpctrip.runner.replay import replay
from hpctrip.sim.rounds import Status

POINTS = Path(__file__).parents[1] / "points.py"
KINDS = {
    "synchronous": "rounds.work_s=20",
    "quorum": "rounds={kind='quorum', num=3, grace_s=5, longest_s=300}",
    "buffered": "rounds={kind='buffered', num=2, concurrency=4}",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Zones of carbon whose windows close for some minutes, waits, and an event."""
    folder = tmp_path_factory.mktemp("signals")
    for zone, shift in (("a", 0), ("b", 3), ("c", 7)):
        values = [60 if (minute + shift) % 10 < 6 else 140 for minute in range(60)]
        lines = [f"{60 * minute},{value}" for minute, value in enumerate(values)]
        (folder / f"{zone}.csv").write_text("\n".join(["time_s,g_per_kwh", *lines]))
    (folder / "waits.txt").write_text("wait_s\n0\n10\n60\n")
    (folder / "events.txt").write_text(
        "site,start_s,duration_s,depth,notice_s\n1,100,200,0.25,60\n4,300,90,1,0\n"
    )
    return folder


def lines_of(files, kind):
    return [
        f"-o{line}"
        for line in (
            f"plugins=['{POINTS}']",
            "workload={kind='points', train_samples=400, test_samples=200}",
            "sites.num_sites=6",
            "stop.max_rounds=8",
            "timing.seconds_per_sample=0.5",
            "policy.kind='while-clean'",
            "server.weights='processed'",
            f"carbon={{kind='csv', path='{files}/?.csv', value_column='g_per_kwh'}}",
            "availability.clean={kind='window', below=100, between='linear', provision_s=20, hold_s=15}",
            f"availability.slurm={{kind='queue', path='{files / 'waits.txt'}', sigma=0.3}}",
            f"availability.grid={{kind='events', path='{files / 'events.txt'}'}}",
            KINDS[kind],
        )
    ]


@pytest.fixture(scope="module", params=KINDS)
def coming(request, hpctrip, tiny, files, tmp_path_factory):
    """A run of each kind of rounds, and its lines."""
    path = tmp_path_factory.mktemp("coming") / "run.h5"
    lines = lines_of(files, request.param)
    ended = hpctrip("run", tiny, *lines, "--out", path)
    assert ended.code == 0, ended.err
    return open_run(path), lines


def test_the_run_of_these_tests_has_waits_and_idle_and_absent_sites(coming):
    run, _ = coming
    assert {Status.ARRIVED, Status.IDLE} <= set(run.cohorts["status"]) and run.cohorts["queue_s"].max() > 20
    assert run.flights["begin_s"].gt(run.flights["start_s"]).any()
    assert run.cohorts["wait_energy_j"].sum() == pytest.approx(run.rounds["wait_energy_j"].sum(), rel=1e-12)


def test_verify_replays_it_and_finds_what_is_forged(coming, files):
    run, _ = coming
    again = (Plugin.read(str(POINTS)),), [str(files.parent), str(files)]
    assert [*verify(run), *replay(run, *again)] == []
    for column, status in (
        ("queue_s", Status.ARRIVED),
        ("comm_s", Status.IDLE),
        ("wait_energy_j", Status.IDLE),
    ):
        forged = open_run(run.path)
        forged.cohorts.loc[forged.cohorts.index[forged.cohorts["status"] == status][0], column] += 7.0
        assert [*verify(forged), *replay(forged, *again)], column


@pytest.mark.mpi
def test_three_ranks_change_no_bit(coming, tiny, tmp_path, launch):
    run, lines = coming
    ended = launch(3, "run", tiny, *lines, "--out", tmp_path / "run.h5")
    assert ended.code == 0, ended.err
    assert diff(open_run(tmp_path / "run.h5"), run) == []


@pytest.mark.mpi
def test_a_run_that_ended_early_goes_on_on_other_ranks(coming, tiny, tmp_path, launch):
    run, lines = coming
    out = tmp_path / "run.h5"
    assert launch(3, "run", tiny, *lines, "-ostop.max_rounds=3", "--out", out).code == 0
    ended = launch(2, "resume", out, "--plugin", POINTS, "-o", "stop.max_rounds=8")
    assert ended.code == 0, ended.err
    assert diff(open_run(out), run) == []


def test_a_plan_has_its_rounds(coming):
    run, _ = coming
    experiment = experiment_of(run.input)
    task = experiment.workload.task(experiment.seed)
    host = Host(experiment, experiment.checked_num_sites(), task, Ranks(), torch.device("cpu"))
    planned = [each.row for each in first_rounds(Aggregator(host), len(run.rounds))]
    for row, other in zip(run.history().rows, planned, strict=True):
        assert row.clock_s == other.clock_s and row.energy_j == pytest.approx(other.energy_j, rel=1e-12)
        np.testing.assert_array_equal(row.billed.site, other.billed.site)


def test_the_report_of_sites_has_their_waits_and_idle_hours(coming, hpctrip):
    run, _ = coming
    sites = json.loads(hpctrip("show", run.path, "--sites", "--format", "json").out)["runs"][0]["sites"]
    idle_s = run.cohorts["comm_s"][run.cohorts["status"] == Status.IDLE].sum()
    assert sum(site["idle_s"] for site in sites) == pytest.approx(idle_s)
    assert sum(site["energy_kwh"] for site in sites) == pytest.approx(run.rounds["energy_j"].sum() / 3.6e6)
    assert sum(site["queued_s"] for site in sites) > 0
    held_s = [site["provisioned_s"] for site in sites]
    assert sum(held_s) > idle_s + sum(site["computing_s"] for site in sites)
    shown = sum(site["utilisation"] * s for site, s in zip(sites, held_s, strict=True)) / sum(held_s)
    assert f"utilisation {shown:.0%} of the sites" in " ".join(hpctrip("show", run.path).out.split())
    assert sum(site["rounds_in_cohort"] for site in sites) == len(
        run.flying.drop_duplicates(["round", "site"])
    )


def test_an_event_as_long_as_the_run_has_its_energy_in_report_and_picture(coming, monkeypatch):
    """Of other sites and hours they are parts of the same integrals."""
    run, _ = coming
    found, event = event_report.listed, Event("grid", None, np.arange(6), 0.0, np.inf, 0.0, 0.25)
    as_long = lambda run, world: [event._replace(part=found(run, world)[0].part)]  # noqa: E731
    monkeypatch.setattr(event_report, "listed", as_long)
    (reported,) = by_event(run)
    total_j, end_s = run.rounds["energy_j"].sum(), run.rounds["clock_s"].iloc[-1]
    assert reported["energy_j"] == pytest.approx(total_j, rel=1e-9) and reported["lost_s"] > 0
    mean_w = mean_draw_w(run, event.sites, np.array([0.0, 100.0, 0.4 * end_s, end_s]))
    assert mean_w @ [100.0, 0.4 * end_s - 100.0, 0.6 * end_s] == pytest.approx(total_j, rel=1e-9)
    monkeypatch.undo()
    picture = FIGURES["events"]([run])
    (axes,) = picture.picture.axes
    hours = [patch.get_x() for patch in axes.patches]
    assert hours == pytest.approx([100 / 3600, 300 / 3600])  # shaded, and one was announced
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"] == [40 / 3600]
    assert {"concerned_kw", "all_kw"} <= {*picture.table}


def test_show_tells_what_sites_drew_in_an_event_and_what_they_lost(trained, tmp_path, hpctrip):
    """All sites compute all the time, for c seconds a round; from 2 c to 6 c three of them at half power, so that two
    rounds last twice as long, in which the fourth waits for half of the time. What one draws grows with its power."""
    lines = (
        f"plugins=['{POINTS}']",
        "workload={kind='points', train_samples=400, test_samples=200}",
        "train.local_steps=5",
        "train.batch_size=4",
        "network.update_bytes=0",
        "network.propagation_m_per_s=1e30",
        "power={kind='constant', fraction=1.0}",
        "policy.kind=all",
        "sites.num_sites=4",
        "stop.max_rounds=6",
    )
    seconds = float(trained(*lines).rounds["makespan_s"].iloc[0])
    rows = [f"{site},{2 * seconds:.17g},{4 * seconds:.17g},0.5" for site in range(3)] + ["0,36e6,60,1"]
    (tmp_path / "events.csv").write_text("\n".join(["site,start_s,duration_s,depth", *rows]))
    run = trained(*lines, f"availability.grid={{kind='events', path='{tmp_path / 'events.csv'}'}}")
    reported = json.loads(hpctrip("show", run.path, "--format", "json").out)["runs"][0]["events"]
    event, later = sorted(reported, key=lambda each: each["start_s"])  # rows are alike but for their sites
    assert event["began"] and not later["began"]
    assert event["num_sites"] == 3 and event["depth"] == 0.5
    assert event["energy_j"] == pytest.approx(3 * 22e3 * 4 * seconds)
    assert event["without_j"] == pytest.approx(3 * 44e3 * 4 * seconds)
    assert event["lost_s"] == pytest.approx(3 * 2 * seconds)
    text = " ".join(hpctrip("show", run.path).out.split())
    per_mwh = 3.6e9 / 22e3 / 3600  # a site at full power for an hour sheds half of 44 kWh
    assert (
        "event 1 of grid" in text
        and "-50% against the same run without the event;" in text
        and f"{per_mwh / 2:.3g} h per" in text
    )
    assert "event 2 of grid 1 site(s), from 1e+04 h on: the run ended before it" in text
    (tmp_path / "events.csv").write_text("site,start_s,duration_s\n0,1,1\n")
    assert "event 1" not in hpctrip("show", run.path).out  # it is another file


def test_the_centralized_baseline_is_always_available():
    lines = ["availability.queue.wait_s=60", "availability.slurm={kind='queue', wait_s=5}"]
    assert read_input([], lines).experiment.availability.keys() == {"queue", "slurm"}
    central = read_input([], [*lines, "policy.kind=centralized"])
    assert central.experiment.availability == {} and "availability" in central.tables


@pytest.mark.parametrize("line", ["timing.compute=measured", "timing.clock=mean-power"])
def test_availability_needs_a_clock_of_single_sites(line):
    experiment = read_input([], ["availability.queue.wait_s=60", line]).experiment
    with pytest.raises(InputError, match=r"which \[availability.queue\] needs"):
        experiment.checked_num_sites()


def test_an_event_whose_sites_do_nothing_is_compared_with_nothing():
    event = {"num_sites": 1, "start_s": 0.0, "end_s": 3600.0, "depth": 0.5, "lost_s": 0.0, "began": True}
    text = sentence(event | {"energy_j": 0.0, "without_j": 0.0})
    assert text == "1 site(s), 0 h to 1 h: asked -50%, drew 0 Wh; 0 h of training at full power lost"
