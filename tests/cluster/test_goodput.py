"""Pollux's trainings: their lengths by batch size, their speeds as measured, and the published averages."""

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.cluster.traces import TRACES
from hpctrip.cluster.traces.pollux import application_files, read_application
from hpctrip.config.inputs import validate

WORKLOAD = "name,time,application,num_replicas,batch_size\nown-0,0,own,2,64\nown-1,60,own,1,32\n"


@pytest.fixture
def folder(tmp_path):
    """An application of two epochs on up to two nodes of two GPUs, and a workload of it."""
    own = tmp_path / "own"
    own.mkdir()
    rows = [
        f"{placement},{local},{0.1 + 0.01 * local + sync},{sync}"
        for placement, sync in (("1", 0.0), ("2", 0.05), ("11", 0.2), ("22", 0.3))
        for local in (16, 32, 64)
    ]
    (own / "placements.csv").write_text("\n".join(["placement,local_bsz,step_time,sync_time", *rows]))
    (own / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,3,16,0.6,0.3\n"
    )
    for batch in (32, 128):
        (own / f"validation-{batch}.csv").write_text(
            "progress,iteration,metric,grad_sqr,grad_var\n100,100,1,1.0,3.0\n200,200,1,1.0,0.0\n"
        )
    (tmp_path / "workload.csv").write_text(WORKLOAD)
    return tmp_path


def pollux(folder, catalogue, **keys):
    keys = {"path": str(folder / "workload.csv"), "applications": str(folder)} | keys
    return TRACES["pollux"](**keys).jobs(catalogue, 0)


def test_noise_says_how_many_steps_a_larger_batch_saves(folder):
    application = read_application(folder / "own")
    assert application.num_steps(32) == 200
    # four times the batch: a step is worth 4 / (3/4 + 1) in the first epoch and 1 in the second, which has no noise
    assert application.num_steps(128) == pytest.approx(100 * 1.75 / 4 + 100)
    assert application.num_steps(64) == pytest.approx(100 * 2.5 / 4 + 100)


def test_steps_are_as_measured_where_they_were(folder):
    application = read_application(folder / "own")
    assert application.step(2, 1, 1, 24) == pytest.approx((0.34, 0.05))
    assert application.step(2, 2, 1, 16) == pytest.approx((0.26, 0.2))
    compute_s, sync_s = application.step(8, 4, 4, 16)
    assert compute_s == pytest.approx(0.26, rel=0.3) and sync_s > 0


def test_a_job_keeps_its_batch_or_takes_the_best_for_its_gpus(folder, catalogue):
    one = np.ones(1)
    fixed, adapting = (
        pollux(folder, catalogue, batch=batch).profiles[-1] for batch in ("as-submitted", "adaptive")
    )
    assert fixed.speed(1, 1, one)[0] == pytest.approx(1 / ((0.1 + 0.01 * 32 + 0.1 + 0.01 * 32) * 162.5))
    for gpus, nodes in ((1, 1), (2, 1), (4, 2)):
        assert adapting.speed(gpus, nodes, one)[0] >= fixed.speed(gpus, nodes, one)[0] * (1 - 1e-9)
    assert fixed.most_gpus == 4 and adapting.most_gpus == 8
    assert pollux(folder, catalogue).steps.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("own,2", "other,2", "line 2: application = 'other' has no placements.csv"),
        (",64", ",4096", "line 2: batch_size = '4096' is outside the batch sizes"),
    ],
)
def test_a_bad_workload_is_one_line(good, bad, message, folder, catalogue):
    (folder / "workload.csv").write_text(WORKLOAD.replace(good, bad))
    with pytest.raises(InputError) as error:
        pollux(folder, catalogue)
    assert message in str(error.value) and len(str(error.value).splitlines()) == 1


def test_a_folder_without_applications_is_named(tmp_path):
    with pytest.raises(InputError, match=r"holds no APPLICATION/\*\.csv"):
        application_files(str(tmp_path))


@pytest.mark.parametrize(
    ("scheduler", "keys", "batch", "published_s"),
    [
        ("tiresias", {"queue_limits_gpu_s": [57_600.0]}, "as-submitted", 3469.7),
        ("optimus", {"doubling": False}, "as-submitted", 5301.9),
        ("pollux-greedy", {}, "adaptive", 2446.1),
    ],
)
def test_workload_6_takes_what_adaptdls_simulator_published(scheduler, keys, batch, published_s, published):
    workload, traces = published("pollux/workloads/workload-6.csv"), published("pollux/traces")
    tables = {
        "cluster": {"num_nodes": 16, "gpus_per_node": 4, "off_after_s": "never"},
        "placement": {"max_migrations": 0},
        "scheduler": {"kind": scheduler, **keys},
        "jobs": {"kind": "pollux", "path": workload, "applications": traces, "batch": batch},
    }
    result = validate(tables, ClusterScenario).simulator().run()
    assert result.mean_jct_s == pytest.approx(published_s, rel=0.1)
