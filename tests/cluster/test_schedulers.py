"""Schedulers and frequency policies decide as in their papers, in cases that can be checked by hand."""

import numpy as np
import pytest

from hpctrip.cluster.frequencies import FREQUENCIES
from hpctrip.cluster.models import Speeds
from hpctrip.cluster.placement import Machine
from hpctrip.cluster.schedulers import SCHEDULERS, ClusterView
from hpctrip.cluster.schedulers.powerflow import Ascent, Ladder
from hpctrip.sim.hardware.gpu_power import A100

KINDS = [("vgg16", 256), ("bert", 64)]
"""The first scales well, the second hardly beyond four GPUs."""


@pytest.fixture(scope="module")
def speeds(catalogue):
    return Speeds([catalogue.profile(*kind) for kind in KINDS], A100(), 8, 16)


@pytest.fixture
def view(speeds):
    """`view(hours, asked, ...)`: jobs that need so long on one GPU, submitted one second after the other."""

    def build(hours, asked, nodes=1, profile=None, gpus=None, limit_w=np.inf, clock_s=1e5, **others):
        num_jobs = len(hours)
        profile = np.zeros(num_jobs, int) if profile is None else np.array(profile)
        defaults = {
            "submit_s": np.arange(num_jobs, dtype=float),
            "gpu_s": np.zeros(num_jobs),
            "run_s": np.zeros(num_jobs),
            "starts": np.zeros(num_jobs, int),
        }
        return ClusterView(
            clock_s=clock_s,
            machine=Machine(num_nodes=nodes),
            speeds=speeds,
            restart_s=30.0,
            limit_w=limit_w,
            job=np.arange(num_jobs),
            requested=np.array(asked, int),
            profile=profile,
            left=3600 * np.array(hours, float) * speeds.rate[profile, 1, -1],
            gpus=np.zeros(num_jobs, int) if gpus is None else np.array(gpus, int),
            frequency=np.full(num_jobs, 8),
            **(defaults | {name: np.array(values) for name, values in others.items()}),
        )

    return build


def plan(kind, view, **keys):
    return SCHEDULERS[kind](**keys).plan(view).checked(view, kind)


@pytest.mark.parametrize("kind", sorted(SCHEDULERS))
def test_every_scheduler_uses_a_free_cluster_and_answers_an_empty_view(kind, view):
    assert plan(kind, view([5, 3, 8], [2, 1, 4])).gpus.min() > 0
    assert len(plan(kind, view([], [])).gpus) == 0


@pytest.mark.parametrize("kind", sorted(SCHEDULERS))
def test_more_jobs_than_gpus_still_use_them(kind, view):
    assert plan(kind, view([1] * 20, [1] * 20)).gpus.sum() == 8


def test_the_shortest_come_first(view):
    jobs = view([3, 2, 4], [8, 4, 4])
    assert plan("srtf", jobs).gpus.tolist() == [
        8,
        0,
        0,
    ]  # 3 h of one GPU are over on eight before 2 h on four
    assert plan("srsf", jobs).gpus.tolist() == [0, 4, 4]


def test_tiresias_prefers_those_that_have_had_little(view):
    jobs = view([5, 5, 5], [4, 4, 4], gpu_s=[20_000.0, 5000.0, 0.0])
    assert plan("tiresias", jobs).gpus.tolist() == [0, 4, 4]
    assert plan("tiresias", jobs, queue_limits_gpu_s=[57_600.0]).gpus.tolist() == [4, 4, 0]


def test_queues_that_do_not_rise_are_refused():
    with pytest.raises(ValueError, match="must be above 0 and rise"):
        SCHEDULERS["tiresias"](queue_limits_gpu_s=[100.0, 100.0])


def test_gandiva_gives_turns_within_the_shares_of_the_classes(view):
    jobs = view([5] * 4, [4, 4, 1, 1], run_s=[4000.0, 0.0, 0.0, 0.0], gpus=[4, 0, 1, 0])
    assert plan("gandiva", jobs).gpus.tolist() == [0, 4, 1, 1]
    short = jobs.run_s * 0 + [3000.0, 0, 0, 0]
    before = view([5] * 4, [4, 4, 1, 1], run_s=short, gpus=[4, 0, 1, 0])
    assert plan("gandiva", before).gpus.tolist() == [4, 0, 1, 1]


def test_themis_serves_those_who_are_worst_off_unless_a_lease_runs(view):
    waits, fresh = 0.0, 99_000.0
    jobs = view([1, 1], [8, 8], submit_s=[fresh, waits])
    assert plan("themis", jobs).gpus.tolist() == [0, 8]
    leased = view([1, 1], [8, 8], submit_s=[fresh, waits], gpus=[8, 0], run_s=[60.0, 0.0])
    assert plan("themis", leased).gpus.tolist() == [8, 0]


def test_optimus_gives_gpus_where_they_save_most_time(view):
    jobs = view([10, 1], [1, 1])
    assert plan("optimus", jobs).gpus.tolist() == [4, 4]
    more = plan("optimus", jobs, doubling=False).gpus
    assert more.sum() == 8 and more[0] > more[1] >= 1


def test_elasticflow_gives_gpus_to_what_scales(view):
    gpus = plan("elasticflow-like", view([5, 5], [1, 1], profile=[0, 1])).gpus
    assert gpus[0] == 4 and gpus.sum() <= 8


def test_pollux_leaves_a_young_job_that_was_restarted_often_alone(view):
    jobs = view([5, 5], [1, 1], gpus=[1, 1], starts=[3, 3], submit_s=[99_900.0, 0.0])
    gpus = plan("pollux-greedy", jobs).gpus
    assert gpus[0] == 1 and gpus[1] > 1


@pytest.mark.parametrize(("kind", "index"), [("highest", 8), ("least-energy", 4)])
def test_frequency_policies(kind, index, view):
    jobs = view([1, 1], [1, 1])
    assert FREQUENCIES[kind]().choose(jobs, jobs.requested, A100()).tolist() == pytest.approx(
        [index] * 2, abs=1
    )


def test_zeus_lies_between_time_and_energy(view):
    jobs = view([1], [1])
    at = {
        eta: int(FREQUENCIES["zeus"](eta=eta).choose(jobs, jobs.requested, A100())[0])
        for eta in (0.0, 0.5, 1.0)
    }
    assert at[0.0] == 8 and at[1.0] == int(
        FREQUENCIES["least-energy"]().choose(jobs, jobs.requested, A100())[0]
    )
    assert at[1.0] <= at[0.5] <= at[0.0]


@pytest.mark.parametrize("profile", [0, 1])
@pytest.mark.parametrize("host_w", [0.0, 75.0])
def test_a_ladder_climbs_the_hull_of_energy_and_time(profile, host_w, speeds):
    ladder = Ladder(speeds, profile, host_w, 16, np.arange(9))
    steps = ladder.whole
    gains = [step.gain for step in steps[1:]]
    assert gains == sorted(gains, reverse=True) and len(steps) > 4
    seconds, joules = [step.seconds for step in steps], [step.joules for step in steps]
    assert seconds == sorted(seconds, reverse=True) and joules == sorted(joules)
    fastest = speeds.rate[profile, [1, 2, 4, 8, 16]].max()
    assert steps[-1].seconds == pytest.approx(1 / fastest)
    for step in ladder.faster_on(steps[0]):
        assert step.gpus == 1 and step.frequency > steps[0].frequency


def one_by_one(view, ladders, budget_j):
    """Reference for `Ascent`: the same greedy ascent, one job and one step at a time."""
    at = {
        job: [ladders[view.profile[job]].start, list(ladders[view.profile[job]].whole[1:])]
        for job in range(len(view))
    }
    free = view.machine.num_gpus - len(view)
    budget_j -= sum(at[job][0].joules * view.left[job] for job in at)
    while True:
        ready = [(-later[0].gain, -view.left[job], job) for job, (_, later) in at.items() if later]
        if not ready:
            return at
        job = min(ready)[2]
        here, later = at[job]
        there = later[0]
        if there.gpus - here.gpus > free:
            at[job][1] = list(ladders[view.profile[job]].faster_on(here))
            continue
        cost_j = (there.joules - here.joules) * view.left[job]
        if cost_j > budget_j:
            return at
        free, budget_j = free - (there.gpus - here.gpus), budget_j - cost_j
        at[job] = [there, later[1:]]


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("eta", [1.0, 1.2, 1.5, 3.0])
def test_an_ascent_in_groups_equals_an_ascent_one_by_one(nodes, eta, view):
    jobs = view([1, 2, 3, 4, 5, 6.5], [1] * 6, nodes=nodes, profile=[0, 1, 0, 1, 0, 0])
    ladders = [Ladder(jobs.speeds, profile, 75.0, 16, np.arange(9)) for profile in (0, 1)]
    budget_j = eta * sum(
        ladders[p].start.joules * left for p, left in zip(jobs.profile, jobs.left, strict=True)
    )
    gpus, frequency = Ascent(jobs, ladders, budget_j).run()
    expected = one_by_one(jobs, ladders, budget_j)
    assert [(step.gpus, step.frequency) for step, _ in expected.values()] == list(
        zip(gpus.tolist(), frequency.tolist(), strict=True)
    )


def test_powerflow_spends_its_budget_and_no_more(view):
    jobs = view([4, 5, 6], [1, 1, 1], nodes=4)
    energy_j = []
    for eta in (0.5, 0.85, 1.0):
        chosen = plan("powerflow", jobs, eta=eta, counts_hosts=False)
        energy_j.append(
            jobs.energy_j(chosen.gpus, chosen.frequency).sum() / jobs.energy_j(jobs.requested).sum()
        )
    assert energy_j == sorted(energy_j) and energy_j[0] > 0.5  # the least that the jobs need
    for eta, used in zip((0.85, 1.0), energy_j[1:], strict=True):
        assert 0.8 * eta < used <= eta


def test_powerflow_stays_below_the_power_that_there_is(view):
    jobs = view([4, 5, 6], [1, 1, 1], nodes=4, limit_w=2000.0)
    chosen = plan("powerflow", jobs, eta="none")
    hosts_w = chosen.gpus.sum() * 75
    watts = jobs.speeds.power_w[jobs.profile, chosen.gpus, chosen.frequency].sum() + hosts_w
    assert 1000 < watts <= 2000
    assert plan("powerflow", view([4], [1], limit_w=10.0), eta="none").gpus.tolist() == [0]


def test_powerflow_does_not_restart_a_job_for_little(view):
    assert plan("powerflow", view([0.01], [1], gpus=[1]), eta=3.0).gpus.tolist() == [1]
    assert plan("powerflow", view([5], [1], gpus=[1]), eta=3.0).gpus[0] > 1


def test_powerflow_without_frequencies_runs_at_the_highest(view):
    chosen = plan("powerflow", view([5, 5], [1, 1]), moves="gpus")
    assert chosen.frequency.tolist() == [8, 8]
