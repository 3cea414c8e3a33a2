"""Spoiled files of the simulated cluster: inputs, traces of jobs, tables of throughputs and of signals, results."""

import gzip

import pytest
import tomli_w
from fuzzing import accepted_or_refused, hpctrip, many, spoiled, wild_inputs
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.record.cluster import diff_clusters, open_cluster

TINY = """
[cluster]
num_nodes = 2
[jobs]
num_jobs = 6
span_s = 3600
median_s = 600
longest_s = 3600
largest = 8
"""


def tiny(folder, text=TINY):
    path = folder / "tiny_cluster.toml"
    path.write_text(text)
    return path


# inputs


@many
@given(data=st.data())
def test_a_spoiled_input_of_a_cluster(folder, data):
    path = folder / "spoiled_cluster.toml"
    path.write_bytes(data.draw(spoiled(TINY.encode())))
    accepted_or_refused("cluster inputs", "cluster", "check", path)


@many
@given(tables=wild_inputs(ClusterScenario, TINY))
def test_a_wild_cluster_is_simulated_to_its_end_or_refused(folder, tables):
    path, out = folder / "wild_cluster.toml", folder / "wild_cluster.h5"
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    checked = accepted_or_refused("cluster values", "cluster", "check", path)
    out.unlink(missing_ok=True)
    ended = accepted_or_refused("short clusters", "cluster", path, "--out", out)
    if checked.code == 2:
        assert ended.code == 2, "what check refuses, nothing may accept"
    if ended.code == 0:
        verified = hpctrip("verify", out)
        assert verified.code == 0, (tables, verified)


# tables

JOBS = {
    "csv": "submit_s,gpus,duration_s,steps,model,batch_size\n0,1,100,,vgg16,64\n5,2,200,,gpt2,128\n60,1,,300,bert,64\n",
    "elasticflow": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
    "0,0,500,vgg16,900,256,1,300\n1,200,800,resnet50,900,64,4,300\n",
    "philly": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-03 01:00:00,300,1,300,a\n"
    "2017-10-03 00:50:00,500,2,1000,b\n",
}
THROUGHPUTS = "global_batch_size,1,2,4,8\n64,10,18,30,40\n128,5,9.5,17,28\n"
SIGNAL = "time_s,power_w\n0,5000\n600,2000\n1200,6000\n"


@many
@given(data=st.data())
def test_a_spoiled_trace_of_jobs(folder, data):
    kind = data.draw(st.sampled_from(sorted(JOBS)))
    content = data.draw(spoiled(JOBS[kind].encode()))
    path = folder / ("jobs.csv.gz" if data.draw(st.booleans()) else "jobs.csv")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    small = tiny(folder, "[cluster]\nnum_nodes = 2\n[clock]\nstop_s = 1e5\n")
    given_ = ("-o", f"jobs.kind={kind}", "-o", f"jobs.path='{path}'", "-o", "scheduler.kind=fifo")
    out = folder / "jobs.h5"
    out.unlink(missing_ok=True)
    accepted_or_refused(f"job traces, {kind}", "cluster", small, *given_, "--out", out)


@many
@given(data=st.data())
def test_spoiled_tables_of_throughputs_and_of_power(folder, data):
    (folder / "model.csv").write_bytes(data.draw(spoiled(THROUGHPUTS.encode())))
    accepted_or_refused("throughputs", "cluster", "fit", folder / "model.csv")
    (folder / "limit.csv").write_bytes(data.draw(spoiled(SIGNAL.encode())))
    out = folder / "limit.h5"
    out.unlink(missing_ok=True)
    limit = ("-o", "budget.kind=power", "-o", f"budget.path='{folder}/limit.csv'", "-o", "clock.stop_s=1e5")
    accepted_or_refused("power limits", "cluster", tiny(folder), *limit, "--out", out)


# results


@pytest.fixture(scope="module")
def results(folder):
    """A sound results file of a cluster."""
    path = folder / "sound_cluster.h5"
    ended = hpctrip("cluster", tiny(folder), "--out", path, "--overwrite")
    assert ended.code == 0, ended.err
    return path


@many
@given(data=st.data())
def test_a_spoiled_results_file_of_a_cluster(folder, results, data):
    path = folder / "spoiled_cluster.h5"
    path.write_bytes(data.draw(spoiled(results.read_bytes())))
    shown = accepted_or_refused("show", "show", path)
    verified = accepted_or_refused("verify", "verify", path)
    accepted_or_refused("diff", "diff", results, path, also=(1,))
    accepted_or_refused("export", "export", path, folder / "csv", "--overwrite")
    accepted_or_refused("figures", "plot", "cluster_time", path, "--out", folder / "time.png")
    if verified.code == 0:
        assert shown.code == 0
        assert diff_clusters(open_cluster(results), open_cluster(path)) == []
