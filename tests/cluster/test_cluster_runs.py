"""Simulated clusters from the command line to the results file, and the commands that read the file."""

import json

import h5py
import pytest

from hpctrip.base.units import amount
from hpctrip.cluster.results import ClusterRun
from hpctrip.cluster.run import replay
from hpctrip.record.diff import diff
from hpctrip.record.verify import verify

TINY = ("jobs.num_jobs=8", "jobs.span_s=3600", "jobs.median_s=900", "cluster.num_nodes=4", "jobs.largest=8")


def lines(*overrides):
    return [part for line in overrides for part in ("-o", line)]


@pytest.fixture(scope="module")
def simulated(hpctrip, tmp_path_factory):
    """`simulated(*lines)`: the results file of the tiny cluster with these `-o` lines."""

    def run(*overrides, name="run"):
        path = tmp_path_factory.mktemp("cluster") / f"{name}.h5"
        ended = hpctrip("cluster", *lines(*TINY, *overrides), "--out", path)
        assert ended.code == 0, ended.err
        return path

    return run


@pytest.fixture(scope="module")
def fifo(simulated):
    return simulated("scheduler.kind=fifo")


def test_the_shipped_scenario_says_what_was_simulated(hpctrip, tmp_path):
    path = tmp_path / "run.h5"
    ended = hpctrip("cluster", "inputs/cluster/powerflow.toml", *lines(*TINY), "--out", path)
    assert ended.code == 0, ended.err
    assert "powerflow, placement buddy, budget none" in ended.out
    assert "8 of 8 completed, from a generator (synthetic)" in ended.out
    assert hpctrip("cluster", *lines(*TINY), "--out", path).code == 2, "it would have been overwritten"


def test_a_file_holds_units_digests_and_what_was_read(fifo):
    run = ClusterRun.open(fifo)
    assert run.jobs.attrs["units"]["energy_j"] == "J" and run.intervals.attrs["units"]["power_w"] == "W"
    assert run.meta["scheduler"] == "fifo" and run.meta["synthetic_jobs"] and run.status == "finished"
    assert run.meta["mean_jct_s"] == pytest.approx(run.jobs.jct_s.mean())
    assert run.setting("cluster.host_w") == 600 and "jobs" in run.input_toml
    assert not run.schema_faults()


def test_show_export_verify_and_diff_take_it(hpctrip, simulated, fifo, tmp_path):
    assert "job completion time" in hpctrip("show", fifo).out
    assert hpctrip("show", "--status", fifo).out == "finished\n"
    assert hpctrip("export", fifo, tmp_path).code == 0
    assert json.loads((tmp_path / "meta.json").read_text())["input"]["scheduler"]["kind"] == "fifo"
    assert len((tmp_path / "jobs.csv").read_text().splitlines()) == 9
    assert hpctrip("verify", fifo).out == f"{fifo}: ok\n"
    assert "equal: 8 jobs" in hpctrip("diff", fifo, simulated("scheduler.kind=fifo", "name=other")).out
    other = hpctrip("diff", fifo, simulated("scheduler.kind=fifo", "seed=1"))
    assert other.code == 1 and "input: seed: 0 | 1" in other.out and "jobs: " in other.out


def test_the_times_at_which_jobs_and_budget_begin_are_shown(hpctrip, tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_s,gpus,duration_s\n36000,1,600\n")
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,5000\n36000,3000\n72000,5000\n")
    files = [
        f"jobs={{kind='csv', path='{tmp_path}/jobs.csv'}}",
        f"budget={{kind='power', path='{tmp_path}/power.csv'}}",
    ]
    ended = hpctrip("cluster", *lines(*files), "--out", tmp_path / "run.h5")
    assert "jobs 36000 s; budget 36000 s" in ended.out
    run = ClusterRun.open(tmp_path / "run.h5")
    assert run.meta["simulated_start"] == ["jobs 36000 s", "budget 36000 s"]
    assert run.intervals.limit_w.iloc[-1] == 3000
    assert hpctrip("verify", tmp_path / "run.h5", "--data", tmp_path).out == f"{tmp_path / 'run.h5'}: ok\n"
    assert "# simulated time begins: jobs 36000 s\n" in hpctrip("cluster", "check", *lines(*files)).out


def test_show_tells_the_grams_where_the_intensity_is_known(hpctrip, simulated, fifo):
    assert "CO2" not in hpctrip("show", fifo).out
    known = simulated("scheduler.kind=fifo", "carbon={kind='daily', mean=250.0, swing=100.0, spread=false}")
    grams = ClusterRun.open(known).meta["carbon_g"]
    assert f"carbon {amount(grams, 'grams')} CO2 (synthetic)" in " ".join(hpctrip("show", known).out.split())
    assert hpctrip("verify", known).out == f"{known}: ok\n"


def test_verify_finds_what_was_changed_and_what_the_input_does_not_lead_to(hpctrip, fifo, tmp_path):
    changed = tmp_path / "changed.h5"
    changed.write_bytes(fifo.read_bytes())
    with h5py.File(changed, "r+") as file:
        file["jobs/jct_s"][0] += 1
    ended = hpctrip("verify", changed)
    assert ended.code == 2 and "/jobs does not match its checksum" in ended.err
    run = ClusterRun.open(fifo)
    run.jobs.loc[2, "energy_j"] += 1000.0
    assert any("/jobs/energy_j" in fault.place for fault in verify(run))
    (fault,) = replay(run)
    assert "/jobs/energy_j, row 2" in str(fault) and "simulated again" in str(fault)
    run.input["jobs"] |= {"num_jobs": 3}
    (fault, *_) = replay(run)
    assert "has 8 rows, simulated again 3" in str(fault)


def test_a_trace_is_replayed_only_from_where_the_user_says(hpctrip, tmp_path):
    trace = tmp_path / "theirs.csv"
    trace.write_text("submit_s,gpus,duration_s\n0,1,100\n5,2,200\n")
    path = tmp_path / "run.h5"
    overrides = ("jobs.kind=csv", f"jobs.path={trace}", "scheduler.kind=fifo")
    assert hpctrip("cluster", *lines(*overrides), "--out", path).code == 0
    assert "not replayed: it needs jobs.path" in hpctrip("verify", path).out
    assert hpctrip("verify", path, "--data", trace).out == f"{path}: ok\n"
    trace.write_text("submit_s,gpus,duration_s\n0,1,100\n5,2,201\n")
    ended = hpctrip("verify", path, "--data", trace)
    assert ended.code == 2 and "give the file that the run read" in ended.err


def test_a_scheduler_of_ones_own_is_a_plug_in(hpctrip, tmp_path):
    plugin = tmp_path / "newest.py"
    plugin.write_text(
        "import numpy as np\n"
        "from hpctrip.cluster.schedulers import SCHEDULERS, Scheduler\n\n"
        "@SCHEDULERS.add\nclass Newest(Scheduler):\n"
        '    """Last come, first served."""\n\n    kind = "newest"\n\n'
        "    def plan(self, view):\n"
        '        return view.in_order(np.argsort(-view.submit_s, kind="stable"))\n'
    )
    path = tmp_path / "run.h5"
    arguments = lines(*TINY, "scheduler.kind=newest")
    assert hpctrip("cluster", *arguments, "--plugin", plugin, "--out", path).code == 0
    assert "not replayed: the run was made with plug-ins" in hpctrip("verify", path).out
    assert hpctrip("verify", path, "--plugin", plugin).out == f"{path}: ok\n"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["scheduler.kind=powerflwo"], "unknown scheduler; did you mean 'powerflow'?"),
        (["cluster.num_nodes=1", "cluster.gpus_per_node=2"], "asks for 4 GPUs, the cluster has 2"),
        (["budget.kind=power"], "needs either watts or path"),
        (["budget.kind=energy", "budget.kwh=1", "budget.period_s=1", "clock.round_s=0"], "needs rounds"),
        (["models.tables=inputs"], "holds no .csv file"),
        (["clock.round_s=0.5"], "round_s = 0.5 is neither 0 nor 1 s or longer"),
        (["nodes=3"], "nodes: unknown key"),
    ],
)
def test_bad_input_is_one_line(hpctrip, overrides, message):
    hpctrip("cluster", *lines(*overrides)).check_refused([message])


def test_a_simulation_of_too_many_intervals_is_refused(hpctrip, monkeypatch):
    monkeypatch.setattr("hpctrip.cluster.rows.MOST_INTERVALS", 20)
    ended = hpctrip("cluster", *lines(*TINY, "clock.sample_s=100"))
    ended.check_refused(["clock.sample_s = 100", "over 20 intervals", "clock.stop_s"])


def test_fit_prints_parameters_and_errors(hpctrip, tmp_path):
    (tmp_path / "m.csv").write_text("global_batch_size,1,2,4,8\n64,10,18,30,40\n128,5,9.5,17,28\n")
    ended = hpctrip("cluster", "fit", tmp_path / "m.csv")
    assert ended.code == 0 and "mean error" in ended.out and "gamma" in ended.out and "m  " in ended.out
    hpctrip("cluster", "fit", tmp_path / "none.csv").check_refused(["no such file"])


def test_check_prints_an_input_that_means_the_same(hpctrip, tmp_path):
    arguments = lines(*TINY, "cluster.off_after_s=never", "scheduler.eta=none")
    output = hpctrip("cluster", "check", *arguments).out
    assert 'off_after_s = "never"' in output and 'eta = "none"' in output
    (tmp_path / "again.toml").write_text(output)
    assert hpctrip("cluster", "check", tmp_path / "again.toml").out == output
    hpctrip("cluster", "check", *lines("jobs.kind=csv", "jobs.path=none.csv")).check_refused(["none.csv"])


def test_keys_are_those_of_the_cluster(hpctrip):
    output = hpctrip("cluster", "keys", "scheduler").out
    assert "counts_hosts" in output and "powertrip" not in output
    assert "did you mean 'off_after_s'?" in hpctrip("cluster", "keys", "off_after").err


def test_the_shipped_cluster_is_listed_printed_and_copied(hpctrip, tmp_path):
    assert "cluster/powerflow" in hpctrip("inputs").out
    hpctrip("inputs", "cluster/powerflow", "--to", tmp_path)
    assert (tmp_path / "cluster/powerflow.toml").read_text() == hpctrip("inputs", "cluster/powerflow").out


def test_from_python_it_gives_frames_and_a_picture(tmp_path, trained):
    import hpctrip

    overrides = dict(line.split("=") for line in TINY)
    cluster = hpctrip.simulate(
        overrides={key: int(value) for key, value in overrides.items()}, out=tmp_path / "c.h5"
    )
    assert len(cluster.jobs) == 8 and "powerflow, finished, 8 jobs" in repr(cluster)
    assert "job completion time" in cluster._repr_html_()
    assert len(cluster.plot().table) == len(cluster.intervals)
    assert hpctrip.open(tmp_path / "c.h5").jobs.equals(cluster.jobs)
    federated = trained().path
    assert type(hpctrip.open(federated)) is hpctrip.Run
    with pytest.raises(hpctrip.InputError, match="one is a cluster's, the other a federated"):
        diff(cluster, hpctrip.open(federated))
    with pytest.raises(hpctrip.InputError, match="exists"):
        hpctrip.simulate(out=tmp_path / "c.h5")
