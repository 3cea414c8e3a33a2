"""Sites that are GPU clusters: a federated job trains on the capacity that their own jobs leave."""

from pathlib import Path

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.site_power import ClusterPower, read_cluster, simulate_spare
from hpctrip.config.inputs import validate
from hpctrip.config.sources import named_files

ONE_NODE = """
[cluster]
num_nodes = 1
gpus_per_node = 4
boot_s = 0
[clock]
round_s = 0
restart_s = 0
sample_s = 100
[scheduler]
kind = "fifo"
"""


@pytest.fixture
def site(tmp_path):
    """`site(jobs, *tables)`: the input of a cluster of 4 GPUs with these jobs, (submit_s, gpus, duration_s) each."""

    def write(jobs, *tables):
        trace = tmp_path / "jobs.csv"
        lines = [",".join(map(str, job)) for job in jobs]
        trace.write_text("\n".join(["submit_s,gpus,duration_s", *lines]) + "\n")
        path = tmp_path / "site.toml"
        path.write_text("\n".join([ONE_NODE, f'[jobs]\nkind = "csv"\npath = "{trace}"', *tables]))
        return str(path)

    return write


def test_unused_gpus_are_spare(site):
    path = site([(0, 2, 150), (100, 1, 100), (400, 1, 1)])
    # two GPUs for 150 s, one from 100 to 200 s: 2 busy, then (2 x 50 + 1 x 100) / 100 = 2, then none
    assert simulate_spare(read_cluster(path)) == pytest.approx([0.5, 0.5, 1.0, 1.0])


def test_power_that_is_short_leaves_less(site):
    jobs = [(0, 2, 1000), (900, 1, 1)]
    gpu = validate({}, ClusterScenario).gpu
    one_w = float(gpu.full_power_w(1.0)) + 600 / 4
    drawn_w = 600 + 2 * float(gpu.power_w(1.0, 1.0)) + 2 * gpu.idle_w
    limit_w = drawn_w + 1.5 * one_w
    path = site(jobs, f'[budget]\nkind = "power"\nwatts = {limit_w}')
    spare = simulate_spare(read_cluster(path))
    # two GPUs are free, the power is enough for one and a half, or more where the job exchanges gradients
    assert (spare >= 1.5 / 4 - 1e-9).all() and (spare < 2 / 4).all()
    assert len(spare) == 9


def test_a_site_follows_a_cluster_from_its_own_time_and_starts_again(site):
    path = site([(0, 4, 200), (400, 1, 1)])
    supply = ClusterPower(path=path, num_clusters=1).supply(50, 3)
    offset = supply.describe()["cluster_offset"]
    spare = np.array([0.0, 0.0, 1.0, 1.0])
    for clock_s in (0.0, 99.9, 100.0, 350.0, 1234.0):
        assert supply.at(clock_s).tolist() == spare[(offset + int(clock_s // 100)) % 4].tolist()
    assert set(offset.tolist()) == {0, 1, 2, 3}
    together = ClusterPower(path=path, num_clusters=1, offsets=False).supply(50, 3)
    assert set(together.at(150.0)) == {0.0}


def test_clusters_of_made_up_jobs_are_not_alike_but_the_same_each_time(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('[cluster]\nnum_nodes = 1\n[jobs]\nnum_jobs = 20\nspan_s = "1 h"\nlargest = 8\n')
    model = ClusterPower(path=str(path), num_clusters=3, offsets=False)
    first, again = model.supply(40, 0), model.supply(40, 0)
    assert first.synthetic and len({*first.at(600.0).tolist()}) == 3
    assert first.at(600.0).tolist() == again.at(600.0).tolist()
    assert first.describe()["cluster"].tolist() != model.supply(40, 1).describe()["cluster"].tolist()


def test_the_files_that_the_cluster_names_count_too(site, tmp_path):
    path = site([(0, 1, 10)])
    (before,) = [named.source() for named in named_files(ClusterPower(path=path))]
    (tmp_path / "jobs.csv").write_text("submit_s,gpus,duration_s\n0,1,11\n")
    (after,) = [named.source() for named in named_files(ClusterPower(path=path))]
    assert before.key == after.key == "path" and before.digest != after.digest


def test_a_wrong_input_of_the_cluster_is_named_with_its_file(site):
    wrong = ClusterPower(path=site([(0, 1, 10)], "[placement]\nkind = 'buddies'"))
    with pytest.raises(InputError, match=r"site\.toml: placement\.kind = 'buddies': unknown placement"):
        wrong.supply(3, 0)


def test_plug_ins_that_the_cluster_names_are_not_run(tmp_path):
    plugin, path = tmp_path / "bad.py", tmp_path / "site.toml"
    plugin.write_text("raise SystemExit('run')")
    path.write_text(f'plugins = ["{plugin}"]\n')
    with pytest.raises(InputError, match="names plug-ins, which are not run"):
        ClusterPower(path=str(path)).supply(3, 0)


def test_powertrip_trains_over_clusters_and_is_replayed(trained, hpctrip, site):
    path = site([(0, 2, 150), (100, 1, 100), (400, 1, 1)])
    run = trained(f"power={{kind = 'cluster', path = '{path}', num_clusters = 2}}", "policy.kind=powertrip")
    assert set(run.sites["power_fraction"]) <= {0.5, 1.0} and run.sites["cluster"].between(0, 1).all()
    assert not run.meta["synthetic_power"]
    assert "not replayed: it needs power.path" in hpctrip("verify", run.path).out
    for data in (path, Path(path).parent):
        assert hpctrip("verify", run.path, "--data", data).out == f"{run.path}: ok\n"
