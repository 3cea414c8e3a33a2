"""Simulations of a cluster: invariants on random scenarios, and small cases that can be checked by hand."""

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import CheckedSimulation

from hpctrip.base.errors import InputError
from hpctrip.base.series import Signal
from hpctrip.cluster.budgets import Budget, Limit
from hpctrip.cluster.frequencies import FREQUENCIES
from hpctrip.cluster.placement import PLACEMENTS
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.schedulers import SCHEDULERS, Plan, Scheduler
from hpctrip.config.inputs import validate

OWN = sorted(SCHEDULERS)


def scenario(**tables):
    return validate(tables, ClusterScenario)


def csv_of(path, *lines):
    """Table [jobs] of a trace of one model with these lines (submit_s, gpus, duration_s)."""
    path.write_text(
        "submit_s,gpus,duration_s,model,batch_size\n" + "".join(f"{line},vgg16,256\n" for line in lines)
    )
    return {"kind": "csv", "path": str(path)}


@st.composite
def scenarios(draw, scheduler=None, budget=None):
    """A small cluster with a few dozen jobs, of which some come at the same time."""
    nodes = draw(st.integers(1, 4))
    return scenario(
        seed=draw(st.integers(0, 3)),
        cluster={
            "num_nodes": nodes,
            "gpus_per_node": 4,
            "nodes_per_rack": 2,
            "off_after_s": draw(st.sampled_from([0.0, 300.0, "never"])),
            "boot_s": draw(st.sampled_from([0.0, 90.0])),
            "hot_spares": draw(st.integers(0, 1)),
        },
        jobs={
            "num_jobs": draw(st.integers(1, 16)),
            "span_s": draw(st.sampled_from([60.0, 7200.0])),
            "median_s": 1200.0,
            "longest_s": 7200.0,
            "largest": 4 * nodes,
            "synthetic_seed": draw(st.integers(0, 99)),
        },
        placement={
            "kind": draw(st.sampled_from(sorted(PLACEMENTS))),
            "max_migrations": draw(st.integers(0, 3)),
        },
        scheduler={"kind": scheduler or draw(st.sampled_from(OWN))},
        frequency={"kind": draw(st.sampled_from(sorted(FREQUENCIES)))},
        budget=budget or {},
    )


@pytest.mark.parametrize("kind", OWN)
def test_no_gpu_is_assigned_twice_and_no_work_is_lost(kind):
    @settings(max_examples=8)
    @given(scenarios(scheduler=kind))
    def check(cluster_scenario):
        result = CheckedSimulation(cluster_scenario.simulator()).run()
        assert result.stop_reason == "all jobs are done"

    check()


@given(scenarios(), st.integers(0, 6000))
@settings(max_examples=15)
def test_a_limit_of_power_is_never_passed(cluster_scenario, watts):
    cluster_scenario = cluster_scenario.model_copy(
        update={
            "budget": validate({"budget": {"kind": "power", "watts": float(watts)}}, ClusterScenario).budget
        }
    )
    floor_w = 0.0
    if cluster_scenario.cluster.off_after_s == "never":  # such nodes draw power under any budget
        machine = cluster_scenario.cluster
        floor_w = machine.num_nodes * machine.host_w + machine.num_gpus * cluster_scenario.gpu.idle_w
    simulator = cluster_scenario.simulator()
    result = CheckedSimulation(simulator).run()
    booted_w = cluster_scenario.cluster.hot_spares * (
        cluster_scenario.cluster.host_w + 4 * cluster_scenario.gpu.idle_w
    )
    for row in result.intervals[1:]:
        assert row.peak_w <= max(watts, floor_w, booted_w) * (1 + 1e-9)


@given(scenarios(), st.floats(0.1, 30.0), st.sampled_from([3600.0, 36_000.0]))
@settings(max_examples=15)
def test_a_budget_of_energy_is_never_passed(cluster_scenario, kwh, period_s):
    if cluster_scenario.cluster.off_after_s == "never" or cluster_scenario.cluster.hot_spares:
        return  # nodes that are never off draw power under any budget
    budget = validate(
        {"budget": {"kind": "energy", "kwh": kwh, "period_s": period_s}}, ClusterScenario
    ).budget
    result = CheckedSimulation(cluster_scenario.model_copy(update={"budget": budget}).simulator()).run()
    used_j = np.cumsum([row.energy_j for row in result.intervals])
    ends_s = np.array([row.clock_s for row in result.intervals])
    allowed_j = kwh * 3.6e6 * np.minimum((np.ceil(ends_s / 60) * 60) / period_s, 1.0)
    assert np.all(used_j <= allowed_j * (1 + 1e-9))


@given(scenarios())
@settings(max_examples=8)
def test_the_same_input_gives_the_same_bits(cluster_scenario):
    first, second = (cluster_scenario.simulator().run() for _ in range(2))
    for name, values in asdict(first.jobs).items():
        assert np.array_equal(values, getattr(second.jobs, name), equal_nan=name.endswith("_s")), name
    assert first.intervals == second.intervals


def test_a_job_alone_takes_its_boot_its_restart_and_its_duration(tmp_path):
    jobs = csv_of(tmp_path / "jobs.csv", "0,2,1000")
    cluster_scenario = scenario(jobs=jobs, scheduler={"kind": "fifo"}, clock={"round_s": 0.0})
    result = cluster_scenario.simulator().run()
    assert result.mean_jct_s == pytest.approx(120 + 30 + 1000)
    machine, gpu = cluster_scenario.cluster, cluster_scenario.gpu
    computing = (result.jobs.energy_j[0] / 1030 / 2 - gpu.static_w) / (gpu.full_power_w(1.0) - gpu.static_w)
    assert 0.9 < computing <= 1
    hosts_j, idle_j = 1150 * machine.host_w, 1030 * 6 * gpu.idle_w
    assert result.energy_j == pytest.approx(result.jobs.energy_j[0] + hosts_j + idle_j)


def test_a_node_goes_off_some_time_after_its_last_job_and_boots_again(tmp_path):
    jobs = csv_of(tmp_path / "jobs.csv", "0,1,100", "5000,1,100")
    tables = {"jobs": jobs, "scheduler": {"kind": "fifo"}, "clock": {"round_s": 0.0}}
    result = scenario(**tables).simulator().run()
    on_s = sum(row.nodes_on * (row.clock_s - row.clock_start_s) for row in result.intervals)
    assert on_s == pytest.approx(2 * 250 + 300) and sum(row.boots for row in result.intervals) == 2
    always = scenario(**tables, cluster={"off_after_s": "never"}).simulator().run()
    assert [row.nodes_on for row in always.intervals] == [16.0] * len(always.intervals)
    assert always.mean_jct_s == pytest.approx(130)


def test_fifo_keeps_the_line_and_backfill_does_not(tmp_path):
    jobs = csv_of(tmp_path / "jobs.csv", "0,4,1000", "1,8,1000", "2,1,10")
    tables = {"jobs": jobs, "cluster": {"num_nodes": 1, "off_after_s": "never"}, "clock": {"round_s": 0.0}}
    line = scenario(**tables, scheduler={"kind": "fifo"}).simulator().run()
    assert line.jobs.start_s.tolist() == pytest.approx([0, 1030, 2060])
    filled = scenario(**tables, scheduler={"kind": "fifo", "backfill": True}).simulator().run()
    assert filled.jobs.start_s.tolist() == pytest.approx([0, 1030, 2])


def test_power_runs_out_and_the_last_job_waits_for_it(tmp_path):
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,3000\n600,0\n1200,3000\n1800,3000\n")
    jobs = csv_of(tmp_path / "jobs.csv", "0,4,900")
    budget = {"kind": "power", "path": str(tmp_path / "power.csv")}
    checked = CheckedSimulation(scenario(jobs=jobs, scheduler={"kind": "fifo"}, budget=budget).simulator())
    result = checked.run()
    powers = [row.peak_w for row in result.intervals]
    assert powers[0] > 2000 and powers[1] == 0 and powers[2] > 2000
    assert result.jobs.starts.tolist() == [2] and result.jobs.work_left.tolist() == [0]


def test_carbon_is_counted_by_its_intensity_and_kept_within_the_budget(tmp_path):
    (tmp_path / "carbon.csv").write_text("time_s,g_per_kwh\n0,100\n3600,500\n7200,100\n")
    budget = {"kind": "carbon", "grams": 400.0, "period_s": 7200.0, "path": str(tmp_path / "carbon.csv")}
    jobs = csv_of(tmp_path / "jobs.csv", "0,4,3000", "10,4,3000")
    result = scenario(jobs=jobs, scheduler={"kind": "fifo"}, budget=budget).simulator().run()
    for row in result.intervals:
        intensity = 500 if 3600 <= row.clock_start_s % 10_800 < 7200 else 100
        assert row.carbon_g == pytest.approx(row.energy_j / 3.6e6 * intensity)
    assert sum(row.carbon_g for row in result.intervals) <= 400 * (1 + 1e-9)


def test_a_budget_that_is_spent_ends_the_simulation_with_what_is_left(tmp_path):
    jobs = csv_of(tmp_path / "jobs.csv", "0,4,100000")
    budget = {"kind": "energy", "kwh": 2.0, "period_s": 3600.0}
    result = scenario(jobs=jobs, scheduler={"kind": "fifo"}, budget=budget).simulator().run()
    assert "no job that is left is given GPUs" in result.stop_reason
    assert np.isnan(result.mean_jct_s) and result.jobs.work_left[0] > 0
    assert result.energy_j <= 2 * 3.6e6 * (1 + 1e-9)


def test_a_lease_that_is_no_number_of_rounds_is_refused():
    keys = {"scheduler": {"kind": "themis", "lease_s": 1000.0}, "clock": {"round_s": 60.0}}
    with pytest.raises(
        InputError, match=r"scheduler.lease_s = 1000: is no multiple of clock.round_s = 60; give 1020"
    ):
        scenario(**keys).simulator()


def test_rounds_of_no_length_are_refused_where_they_are_needed():
    with pytest.raises(InputError, match="budget 'energy' needs rounds; give their length"):
        scenario(
            clock={"round_s": 0.0},
            scheduler={"kind": "fifo"},
            budget={"kind": "energy", "kwh": 1.0, "period_s": 1.0},
        ).simulator()


@pytest.mark.parametrize(
    ("gpus", "frequency", "order", "message"),
    [
        (lambda view: view.requested + 200, None, None, "the plan's gpus"),
        (lambda view: view.requested[:-1], None, None, "the plan's gpus of shape"),
        (lambda view: view.requested * 0.5, None, None, "the plan's gpus of type float64"),
        (lambda view: view.requested * 0 + 100, None, None, "gave out 200 GPUs; the cluster has 128"),
        (lambda view: view.requested, lambda view: view.gpus + 99, None, "the plan's frequency"),
        (
            lambda view: view.requested,
            None,
            lambda view: view.gpus * 0,
            "gave an order that names a job twice",
        ),
    ],
)
def test_the_plan_of_a_plugged_in_scheduler_is_checked(gpus, frequency, order, message, tmp_path):
    class Own(Scheduler):
        kind = "own"

        def plan(self, view):
            chosen = frequency and frequency(view)
            return Plan(gpus(view), chosen, order and order(view))

    jobs = csv_of(tmp_path / "jobs.csv", "0,1,100", "0,1,100")
    simulator = (
        scenario(jobs=jobs, scheduler={"kind": "fifo"}).model_copy(update={"scheduler": Own()}).simulator()
    )
    with pytest.raises(InputError, match=r"scheduler\.kind = 'own'") as error:
        simulator.run()
    assert message in str(error.value)


def test_a_scheduler_that_gives_no_plan_is_named(tmp_path):
    class Idle(Scheduler):
        kind = "idle"

        def plan(self, view):
            return None

    usual = scenario(scheduler={"kind": "fifo"}, jobs=csv_of(tmp_path / "jobs.csv", "0,1,100"))
    simulator = usual.model_copy(update={"scheduler": Idle()}).simulator()
    with pytest.raises(InputError, match=r"scheduler\.kind = 'idle'.* gave a NoneType as its plan"):
        simulator.run()


@pytest.mark.parametrize("watts", [-1.0, math.nan, None])
def test_the_watts_of_a_plugged_in_budget_are_checked(watts, tmp_path):
    class Strange(Limit):
        def limit_w(self, clock_s, until_s, energy_j, carbon_g):
            return watts

    class Own(Budget):
        kind = "own"

        def limit(self):
            return Strange()

    usual = scenario(scheduler={"kind": "fifo"}, jobs=csv_of(tmp_path / "jobs.csv", "0,1,100"))
    simulator = usual.model_copy(update={"budget": Own()}).simulator()
    with pytest.raises(InputError, match=r"budget: gave the watts that may be drawn = (nan|-1); it must be"):
        simulator.run()


@pytest.mark.parametrize(
    ("intensity", "message"),
    [(None, "gave a NoneType as its limit"), (math.inf, r"gave the intensity of carbon with \[0\] = inf")],
)
def test_an_invalid_limit_is_refused_before_the_simulation(intensity, message):
    class Own(Budget):
        kind = "own"

        def limit(self):
            limit = Limit()
            limit.intensity = Signal.constant(intensity or 0.0)
            return intensity and limit

    with pytest.raises(InputError, match=rf"budget\.kind = 'own'.* {message}"):
        scenario(scheduler={"kind": "fifo"}).model_copy(update={"budget": Own()}).simulator()


def test_ten_lines_are_a_scheduler(tmp_path):
    class Newest(Scheduler):
        """Last come, first served."""

        kind = "newest"

        def plan(self, view):
            return view.in_order(np.argsort(-view.submit_s, kind="stable"))

    jobs = csv_of(tmp_path / "jobs.csv", "0,8,1000", "100,8,1000")
    tables = {"jobs": jobs, "cluster": {"num_nodes": 1, "off_after_s": "never"}, "clock": {"round_s": 0.0}}
    cluster_scenario = scenario(**tables, scheduler={"kind": "fifo"}).model_copy(
        update={"scheduler": Newest()}
    )
    result = CheckedSimulation(cluster_scenario.simulator()).run()
    assert result.jobs.end_s.tolist() == pytest.approx([1130 + 30 + 1000 - 70, 1130])
    assert result.jobs.starts.tolist() == [2, 1]
