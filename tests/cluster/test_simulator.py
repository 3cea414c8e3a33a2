"""Simulations of a cluster: invariants on random scenarios, and small cases that can be checked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import checked_run

from hpctrip.base.errors import InputError
from hpctrip.base.series import Signal
from hpctrip.cluster.budgets import Budget, Limit
from hpctrip.cluster.frequencies import FREQUENCIES
from hpctrip.cluster.placement import PLACEMENTS
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.schedulers import SCHEDULERS, Plan, Scheduler
from hpctrip.config.inputs import validate

ONE_NODE = {"cluster": {"num_nodes": 1, "off_after_s": "never"}, "clock": {"round_s": 0.0}}
"""Tables of a node that is always on and of decisions at once."""


def scenario(scheduler="fifo", **tables):
    """The scenario of these tables; `scheduler` is a table or a kind."""
    scheduler = {"kind": scheduler} if isinstance(scheduler, str) else scheduler
    return validate({"scheduler": scheduler, **tables}, ClusterScenario)


@pytest.fixture
def jobs(tmp_path):
    """`jobs(line, ...)`: table [jobs] of a trace of one model with these lines (submit_s, gpus, duration_s)."""

    def write(*lines):
        path = tmp_path / "jobs.csv"
        rows = "".join(f"{line},vgg16,256\n" for line in lines)
        path.write_text("submit_s,gpus,duration_s,model,batch_size\n" + rows)
        return {"kind": "csv", "path": str(path)}

    return write


@st.composite
def scenarios(draw, scheduler=None):
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
        scheduler=scheduler or draw(st.sampled_from(sorted(SCHEDULERS))),
        frequency={"kind": draw(st.sampled_from(sorted(FREQUENCIES)))},
    )


def limited(cluster_scenario, **budget):
    """The scenario with this table [budget]."""
    return cluster_scenario.model_copy(update={"budget": scenario(budget=budget).budget})


@pytest.mark.parametrize("kind", sorted(SCHEDULERS))
def test_no_gpu_is_assigned_twice_and_no_work_is_lost(kind):
    @settings(max_examples=8)
    @given(scenarios(scheduler=kind))
    def check(cluster_scenario):
        result = checked_run(cluster_scenario.simulator())
        assert result.stop_reason == "all jobs are done"

    check()


@given(scenarios(), st.integers(0, 6000))
@settings(max_examples=8)
def test_a_limit_of_power_is_never_passed(cluster_scenario, watts):
    cluster_scenario = limited(cluster_scenario, kind="power", watts=float(watts))
    result = checked_run(cluster_scenario.simulator())
    assert result.intervals == cluster_scenario.simulator().run().intervals, "other bits"
    for row in result.intervals:
        assert row.peak_w <= watts * (1 + 1e-9)
        assert row.limit_w == watts


@given(scenarios(), st.floats(0.1, 30.0), st.sampled_from([3600.0, 36_000.0]))
@settings(max_examples=8)
def test_a_budget_of_energy_is_never_passed(cluster_scenario, kwh, period_s):
    budget = {"kind": "energy", "kwh": kwh, "period_s": period_s}
    result = checked_run(limited(cluster_scenario, **budget).simulator())
    used_j = np.cumsum([row.energy_j for row in result.intervals])
    ends_s = np.array([row.clock_s for row in result.intervals])
    allowed_j = kwh * 3.6e6 * np.minimum((np.ceil(ends_s / 60) * 60) / period_s, 1.0)
    assert np.all(used_j <= allowed_j * (1 + 1e-9))


def test_a_job_alone_takes_its_boot_its_restart_and_its_duration(jobs):
    cluster_scenario = scenario(jobs=jobs("0,2,1000"), clock={"round_s": 0.0})
    result = cluster_scenario.simulator().run()
    assert result.mean_jct_s == pytest.approx(120 + 30 + 1000)
    machine, gpu = cluster_scenario.cluster, cluster_scenario.gpu
    computing = (result.jobs.energy_j[0] / 1030 / 2 - gpu.static_w) / (gpu.full_power_w(1.0) - gpu.static_w)
    assert 0.9 < computing <= 1
    hosts_j, idle_j = 1150 * machine.host_w, 1030 * 6 * gpu.idle_w
    assert result.energy_j == pytest.approx(result.jobs.energy_j[0] + hosts_j + idle_j)


def test_a_node_goes_off_some_time_after_its_last_job_and_boots_again(jobs):
    tables = {"jobs": jobs("0,1,100", "5000,1,100"), "clock": {"round_s": 0.0}}
    result = scenario(**tables).simulator().run()
    on_s = sum(row.nodes_on * (row.clock_s - row.clock_start_s) for row in result.intervals)
    assert on_s == pytest.approx(2 * 250 + 300) and sum(row.boots for row in result.intervals) == 2
    always = scenario(**tables, cluster={"off_after_s": "never"}).simulator().run()
    assert [row.nodes_on for row in always.intervals] == [16.0] * len(always.intervals)
    assert always.mean_jct_s == pytest.approx(130)


@pytest.mark.parametrize(("backfill", "start_s"), [(False, [0, 1030, 2060]), (True, [0, 1030, 2])])
def test_fifo_keeps_the_line_and_backfill_does_not(backfill, start_s, jobs):
    tables = ONE_NODE | {"jobs": jobs("0,4,1000", "1,8,1000", "2,1,10")}
    result = scenario({"kind": "fifo", "backfill": backfill}, **tables).simulator().run()
    assert result.jobs.start_s.tolist() == pytest.approx(start_s)


def test_power_runs_out_and_the_last_job_waits_for_it(jobs, tmp_path):
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,3000\n600,0\n1200,3000\n1800,3000\n")
    budget = {"kind": "power", "path": str(tmp_path / "power.csv")}
    result = checked_run(scenario(jobs=jobs("0,4,900"), budget=budget).simulator())
    powers = [row.peak_w for row in result.intervals]
    assert powers[0] > 2000 and powers[1] == 0 and powers[2] > 2000
    assert result.jobs.starts.tolist() == [2] and result.jobs.work_left.tolist() == [0]


@pytest.mark.parametrize(
    ("submit_s", "start", "limits_w", "texts"),
    [
        (36_000, {}, [700, 5000], ["jobs 36000 s", "budget 36000 s"]),
        (36_000, {"start_s": 0.0}, [5000, 700], ["jobs 36000 s", "budget 0 s"]),
        (0, {}, [5000, 700], ["jobs 0 s", "budget 0 s"]),
    ],
)
def test_jobs_and_the_file_of_a_budget_share_one_clock(jobs, tmp_path, submit_s, start, limits_w, texts):
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,5000\n36000,700\n72000,5000\n")
    budget = {"kind": "power", "path": str(tmp_path / "power.csv"), **start}
    own = scenario(jobs=jobs(f"{submit_s},1,3600", f"{submit_s + 600},1,3600"), budget=budget)
    simulator = own.simulator()
    assert [simulator.limit.limit_w(at_s, at_s + 1, 0, 0) for at_s in (0, 36_000)] == limits_w
    assert simulator.limit.next_change_s(0) == 36_000 and own.start(simulator) == texts


EPOCH_S = 1_714_564_800  # 2024-05-01T12:00 UTC


@pytest.mark.parametrize(
    ("submit_s", "first_s", "keys", "problem"),
    [
        (
            0,
            EPOCH_S,
            {},
            "12:00:00 UTC to 2024-05-02T18:00:00 UTC, but .* at 0 s; set budget.start_s = 1714564800, its",
        ),
        (
            252_000,
            0,
            {},
            "holds 0 s to 108000 s, but the first job is submitted at 252000 s; set budget.start_s = 0",
        ),
        (
            0,
            3600,
            {},
            "holds 3600 s to 111600 s, but .* at 0 s; set budget.start_s = 3600, its first time",
        ),
        (0, 0, {"start_s": 108_000.0}, "holds 0 s to 108000 s, but the first job is submitted at 108000 s"),
    ],
)
def test_a_budget_that_does_not_hold_the_first_job_is_refused(
    jobs, tmp_path, submit_s, first_s, keys, problem
):
    rows = "".join(f"{first_s + 36_000 * row},{watts}\n" for row, watts in enumerate((5000, 700, 5000)))
    (tmp_path / "power.csv").write_text("time_s,power_w\n" + rows)
    budget = {"kind": "power", "path": str(tmp_path / "power.csv")}
    with pytest.raises(InputError, match=problem):
        scenario(jobs=jobs(f"{submit_s},1,3600"), budget=budget | keys).simulator()
    named = scenario(jobs=jobs(f"{submit_s},1,3600"), budget=budget | {"start_s": float(first_s)}).simulator()
    assert named.limit.limit_w(0, 1, 0, 0) == 5000


def test_a_budget_with_dates_begins_with_dated_jobs_and_carbon_with_it(tmp_path, zones):
    (tmp_path / "power.csv").write_text("time,power_w\n2022-06-01 00:30,500\n2022-06-01 01:30,700\n")
    budget = {"kind": "power", "path": str(tmp_path / "power.csv")}
    own = scenario(budget=budget, carbon=zones("ES"))
    assert [own.simulator().carbon.at(1800.0 * half_hour) for half_hour in range(3)] == [100, 500, 500]
    assert own.start(own.simulator()) == ["budget at its first time", "carbon 2022-06-01T00:30:00 UTC"]
    own = scenario(budget=budget, carbon=zones("ES") | {"start": "2022-06-01T01:30"})
    assert own.simulator().limit.limit_w(0, 1, 0, 0) == 700
    (tmp_path / "philly.csv").write_text("timestamp,duration,num_gpus,cluster\n2022-06-01 01:30:00,600,1,a\n")
    own = scenario(jobs={"kind": "philly", "path": str(tmp_path / "philly.csv")}, budget=budget)
    assert own.simulator().limit.limit_w(0, 1, 0, 0) == 700
    assert own.start(own.simulator())[1] == "budget 2022-06-01T01:30:00 UTC"


def test_jobs_and_carbon_with_dates_begin_at_one_moment(tmp_path, zones):
    (tmp_path / "philly.csv").write_text("timestamp,duration,num_gpus,cluster\n2022-06-01 01:30:00,600,1,a\n")
    trace = {"kind": "philly", "path": str(tmp_path / "philly.csv")}
    own = scenario(jobs=trace, carbon=zones("ES"))
    simulator = own.simulator()
    assert [simulator.carbon.at(hour * 3600.0) for hour in (0, 0.5, 1.5)] == [500, 100, 100]
    assert own.start(simulator) == ["jobs 2022-06-01T01:30:00 UTC", "carbon 2022-06-01T01:30:00 UTC"]
    named = scenario(jobs=trace, carbon=zones("ES") | {"start": "2022-06-01T00:00"}).simulator()
    assert named.carbon.at(0.0) == 100
    (tmp_path / "philly.csv").write_text("timestamp,duration,num_gpus,cluster\n2017-10-09 01:30:00,600,1,a\n")
    with pytest.raises(
        InputError, match=r"carbon.start = '2017-10-09T01:30:00': lies outside the data of carbon"
    ):
        scenario(jobs=trace, carbon=zones("ES")).simulator()


def test_jobs_without_seconds_of_their_own_begin_with_the_file(tmp_path):
    (tmp_path / "power.csv").write_text("time_s,power_w\n3600,5000\n7200,700\n")
    own = scenario(budget={"kind": "power", "path": str(tmp_path / "power.csv")})
    simulator = own.simulator()
    assert simulator.limit.limit_w(0, 1, 0, 0) == 5000
    assert own.start(simulator) == ["budget at its first time"]


@pytest.mark.parametrize(
    ("keys", "text", "problem"),
    [
        ({}, "0,5000\n0.3,700\n", "column time_s has a median interval of 0.3 s; a series has 1 s to 1 day"),
        ({}, "0,5000\n300000,700\n", "column time_s has a median interval of 300000 s"),
        ({"watts": 5.0, "path": None}, "", "start_s needs path"),
    ],
)
def test_files_of_budgets_in_another_unit_are_refused(tmp_path, keys, text, problem):
    (tmp_path / "power.csv").write_text("time_s,power_w\n" + text)
    budget = {"kind": "power", "path": str(tmp_path / "power.csv"), "start_s": 0.0} | keys
    with pytest.raises(InputError, match=problem):
        scenario(budget={key: value for key, value in budget.items() if value is not None}).simulator()


def test_watts_in_another_unit_are_warned_of(tmp_path, caplog):
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,5\n3600,7\n")
    scenario(budget={"kind": "power", "path": str(tmp_path / "power.csv")}).simulator()
    assert "highest power is 7 W; is it in kW" in caplog.text
    (tmp_path / "power.csv").write_text("time_s,power_kw\n0,5\n3600,7\n")
    own = scenario(budget={"kind": "power", "path": str(tmp_path / "power.csv")}).simulator()
    assert own.limit.limit_w(0, 1, 0, 0) == 5000


@pytest.mark.parametrize("off", [{"off_after_s": "never"}, {"hot_spares": 2}, {"off_after_s": 7200.0}])
def test_nodes_without_a_job_keep_the_limit_too_while_no_job_is_there(off, jobs, tmp_path):
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,9000\n1200,500\n4800,9000\n9000,9000\n")
    budget = {"kind": "power", "path": str(tmp_path / "power.csv")}
    cluster = {"num_nodes": 2, "host_w": 600.0} | off
    tables = {"jobs": jobs("0,1,100", "6000,1,100"), "budget": budget, "cluster": cluster}
    rows = checked_run(scenario(**tables).simulator()).intervals
    assert [row.limit_w for row in rows[:10]] == [9000.0] * 2 + [500.0] * 6 + [9000.0] * 2
    assert rows[1].peak_w > 600 and [row.peak_w for row in rows[2:8]] == [0.0] * 6


class AsRequested(Scheduler):
    """Gives each job the GPUs that it asks for, in the order of submission, and asks for them in every round."""

    kind = "own"
    periodic = elastic = True

    def plan(self, view):
        return view.in_order(np.arange(len(view)))


def test_a_job_that_cannot_grow_is_not_restarted(jobs):
    """Jobs of one GPU fill two nodes of two; one ends on each, so that the fifth finds one GPU at a time instead of a
    node. It starts once with one, and again when a whole node is free."""
    lines = ("0,1,300", "0,1,9000", "0,1,300", "0,1,3000", "0,2,9000")
    cluster = {"num_nodes": 2, "gpus_per_node": 2, "boot_s": 0.0}
    placement = {"kind": "buddy", "max_migrations": 0}
    tables = {"jobs": jobs(*lines), "cluster": cluster, "placement": placement}
    own = scenario(**tables).model_copy(update={"scheduler": AsRequested()})
    result = checked_run(own.simulator())
    assert result.jobs.starts.tolist() == [1, 1, 1, 1, 2]
    assert result.jobs.start_s[4] == 360 and result.jobs.end_s[3] == 3030


def test_a_job_that_keeps_its_gpus_runs_at_the_frequency_of_the_plan(jobs):
    class Slower(AsRequested):
        def plan(self, view):
            chosen = super().plan(view)
            slow = np.full(len(view), 0 if view.clock_s >= 600 else 8)
            return Plan(chosen.gpus, slow, chosen.order)

    lines = ("0,1,300", "0,1,90000", "0,1,300", "0,1,90000", "0,2,9000")
    cluster = {"num_nodes": 2, "gpus_per_node": 2, "boot_s": 0.0}
    placement = {"kind": "buddy", "max_migrations": 0}
    tables = {"jobs": jobs(*lines), "cluster": cluster, "placement": placement, "clock": {"stop_s": 2000.0}}
    simulator = scenario(**tables).model_copy(update={"scheduler": Slower()}).simulator()
    checked_run(simulator)
    assert simulator.state.starts[4] == 1 and simulator.state.gpus[4] == 1
    profile = simulator.jobs.profile[4]
    assert simulator.state.rate[4] == simulator.state.speeds.rate[profile, 1, 0]


def test_carbon_is_counted_by_its_intensity_and_kept_within_the_budget(jobs, tmp_path):
    (tmp_path / "carbon.csv").write_text("time_s,g_per_kwh\n0,100\n3600,500\n7200,100\n")
    budget = {"kind": "carbon", "grams": 400.0, "period_s": 7200.0, "path": str(tmp_path / "carbon.csv")}
    result = scenario(jobs=jobs("0,4,3000", "10,4,3000"), budget=budget).simulator().run()
    for row in result.intervals:
        intensity = 500 if 3600 <= row.clock_start_s % 10_800 < 7200 else 100
        assert row.carbon_g == pytest.approx(row.energy_j / 3.6e6 * intensity)
    assert sum(row.carbon_g for row in result.intervals) <= 400 * (1 + 1e-9)


ZONE_FILE = "Datetime (UTC),Zone id,Carbon intensity gCO₂eq/kWh (Life cycle)\n"


@pytest.fixture
def zones(tmp_path):
    """`zones(name, ...)`: table [carbon] of a file of Electricity Maps: 100 g/kWh, then 500, then 100, an hour each."""

    def write(*names):
        path = tmp_path / "2022_hourly.csv"
        hours = [(h, g, name) for name in names for h, g in enumerate((100, 500, 100))]
        path.write_text(ZONE_FILE + "".join(f"2022-06-01 {h:02}:00:00,{name},{g}\n" for h, g, name in hours))
        return {"kind": "electricity-maps", "path": str(path)}

    return write


def test_a_budget_of_carbon_reads_the_files_that_a_run_reads(jobs, zones, tmp_path):
    (tmp_path / "carbon.csv").write_text("time_s,g_per_kwh\n0,100\n3600,500\n7200,100\n")
    budget = {"kind": "carbon", "grams": 400.0, "period_s": 7200.0}
    tables = {"jobs": jobs("0,4,3000", "10,4,3000")}
    own = scenario(**tables, budget=budget | {"path": str(tmp_path / "carbon.csv")})
    dated = scenario(**tables, budget=budget, carbon=zones("ES"))
    assert dated.simulator().run().intervals == own.simulator().run().intervals


def test_carbon_is_counted_without_a_budget_also_while_no_job_is_there(jobs, zones):
    always = {"num_nodes": 1, "off_after_s": "never"}
    tables = {"jobs": jobs("0,1,100", "9000,1,100"), "cluster": always, "carbon": zones("ES")}
    rows = scenario(**tables).simulator().run().intervals
    grams = [row.carbon_g / row.energy_j * 3.6e6 for row in rows]
    assert grams == pytest.approx([100.0] * 6 + [500.0] * 6 + [100.0] * (len(rows) - 12))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, r"budget\.kind = 'carbon': needs the signal \[carbon\]; set carbon\.kind"),
        (
            {"path": "c.csv", "carbon": {"kind": "constant", "per_kwh": 1.0}},
            r"budget\.path = 'c\.csv': and \[carbon\]",
        ),
        (
            {"zones": ("ES", "NO")},
            "carbon.kind = 'electricity-maps': has 2 zones, ES, NO: a cluster is in one",
        ),
        ({"carbon": {"kind": "daily", "mean": 1.0}}, "has 24 zones.*set carbon.spread = false"),
        ({"zones": ("ES",), "site_column": "zone"}, "carbon.site_column = 'zone': names a column of sites"),
    ],
)
def test_a_cluster_has_one_carbon_intensity(tables, message, zones):
    budget = {"kind": "carbon", "grams": 1.0, "period_s": 1.0} | {
        k: v for k, v in tables.items() if k == "path"
    }
    carbon = tables.get("carbon", zones(*tables["zones"]) if "zones" in tables else {})
    carbon |= {k: v for k, v in tables.items() if k == "site_column"}
    with pytest.raises(InputError, match=message):
        scenario(budget=budget, carbon=carbon).simulator()


def test_a_budget_that_is_spent_ends_the_simulation_with_what_is_left(jobs):
    budget = {"kind": "energy", "kwh": 2.0, "period_s": 3600.0}
    result = scenario(jobs=jobs("0,4,100000"), budget=budget).simulator().run()
    assert "no job that is left is given GPUs" in result.stop_reason
    assert np.isnan(result.mean_jct_s) and result.jobs.work_left[0] > 0
    assert result.energy_j <= 2 * 3.6e6 * (1 + 1e-9)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"frequency": {"kind": "least-energy"}},
        {"frequency": {"kind": "zeus", "eta": 0.7}},
        {"budget": {"kind": "power", "watts": 2900.0}},
        {"frequency": {"kind": "zeus"}, "budget": {"kind": "power", "watts": 2600.0}},
    ],
    ids=["highest", "least-energy", "zeus", "power", "zeus, power"],
)
def test_backfilled_jobs_do_not_delay_the_first_that_waits_whatever_the_clocks(tables, tmp_path):
    (tmp_path / "jobs.csv").write_text(
        "submit_s,gpus,duration_s,model,batch_size\n0,4,10000,inception3,128\n60,8,1000,bert,64\n"
        "120,2,9700,vgg16,64\n180,1,9600,vgg16,256\n240,1,300,resnet50,64\n300,2,9000,bert,128\n"
    )
    tables = tables | {"jobs": {"kind": "csv", "path": str(tmp_path / "jobs.csv")}}
    cluster, clock = ONE_NODE["cluster"], {"round_s": 0.0, "restart_s": 0.0}
    starts_s, early = {}, {}
    for kind in ("fifo", "easy-backfill"):
        result = scenario(kind, cluster=cluster, clock=clock, **tables).simulator().run()
        starts_s[kind] = result.jobs.start_s[1]
        early[kind] = (result.jobs.start_s[2:] < starts_s[kind]).sum()
    assert starts_s["easy-backfill"] <= starts_s["fifo"]
    assert early["fifo"] == 0 and early["easy-backfill"] >= ("budget" not in tables)


ENERGY = {"kind": "energy", "kwh": 1.0, "period_s": 1.0}


@pytest.mark.parametrize(
    ("round_s", "tables", "message"),
    [
        (
            60.0,
            {"scheduler": {"kind": "themis", "lease_s": 1000.0}},
            "scheduler.lease_s = 1000: is not a multiple of clock.round_s = 60; give 1020",
        ),
        (0.0, {"budget": ENERGY}, "budget 'energy' needs rounds; give their length"),
    ],
)
def test_rounds_that_do_not_suit_are_refused(round_s, tables, message):
    with pytest.raises(InputError, match=message):
        scenario(clock={"round_s": round_s}, **tables).simulator()


def with_plugged_in(table, answer, tables):
    """The simulation of a scenario whose scheduler or limit gives this answer."""

    class OwnLimit(Limit):
        def limit_w(self, *used):
            return answer

    class Own(Scheduler if table == "scheduler" else Budget):
        kind = "own"

        def plan(self, view):
            return answer(view)

        def limit(self):
            return OwnLimit() if table == "watts" else answer

    part = "scheduler" if table == "scheduler" else "budget"
    return scenario(**tables).model_copy(update={part: Own()}).simulator()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda view: Plan(view.requested + 200), "the plan's gpus"),
        (lambda view: Plan(view.requested[:-1]), "the plan's gpus of shape"),
        (lambda view: Plan(view.requested * 0.5), "the plan's gpus of type float64"),
        (lambda view: Plan(view.requested * 0 + 100), "gave out 200 GPUs; the cluster has 128"),
        (lambda view: Plan(view.requested, view.gpus + 99), "the plan's frequency"),
        (lambda view: Plan(view.requested, None, view.gpus * 0), "gave an order that names a job twice"),
        (lambda view: None, "gave a NoneType as its plan"),
    ],
)
def test_the_plan_of_a_plugged_in_scheduler_is_checked(plan, message, jobs):
    simulator = with_plugged_in("scheduler", plan, {"jobs": jobs("0,1,100", "0,1,100")})
    with pytest.raises(InputError, match=r"scheduler\.kind = 'own'") as error:
        simulator.run()
    assert message in str(error.value)


@pytest.mark.parametrize("watts", [-1.0, math.nan, None])
def test_the_watts_of_a_plugged_in_budget_are_checked(watts, jobs):
    simulator = with_plugged_in("watts", watts, {"jobs": jobs("0,1,100")})
    with pytest.raises(InputError, match=r"budget: gave the watts that may be drawn = (nan|-1); it must be"):
        simulator.run()


class Endless(Limit):
    intensity = Signal.constant(math.inf)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (None, "gave a NoneType as its limit"),
        (Endless(), r"gave the intensity of carbon with \[0\] = inf"),
    ],
)
def test_an_invalid_limit_is_refused_before_the_simulation(limit, message):
    with pytest.raises(InputError, match=rf"budget\.kind = 'own'.* {message}"):
        with_plugged_in("budget", limit, {})


def test_ten_lines_are_a_scheduler(jobs):
    def newest_first(view):
        return view.in_order(np.argsort(-view.submit_s, kind="stable"))

    simulator = with_plugged_in(
        "scheduler", newest_first, ONE_NODE | {"jobs": jobs("0,8,1000", "100,8,1000")}
    )
    result = checked_run(simulator)
    assert result.jobs.end_s.tolist() == pytest.approx([1130 + 30 + 1000 - 70, 1130])
    assert result.jobs.starts.tolist() == [2, 1]
