"""Jobs are read from published layouts and our own, or refused with file, line and value."""

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.cluster.models import Speeds
from hpctrip.cluster.traces import TRACES
from hpctrip.sim.hardware.gpu_power import A100

WITH_MODELS = (
    "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
    "a,100,3249,deepspeech2,0,32,1,1075\nb,160,48266,inception3,0,64,8,3604\n"
)
RAW = "job_id,submission_time,duration,num_gpu\na,100,50,4\nb,160,70,1\n"
PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:13:03,2951.0,2,5902,6214e9\n2017-10-09 06:13:03,,1,,6214e9\n"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,1,1,1,460,,LS,Running,10,500,20\np1,1,1,0,0,,LS,Running,10,500,20\np2,1,1,1,1000,,LS,Pending,10,500,\n"
)
OWN = "submit_s,gpus,duration_s\n0,1,100\n5,2,200\n"


@pytest.fixture
def read(tmp_path, catalogue):
    """`read(kind, text, ...)`: the jobs of a trace with this content."""

    def jobs(kind, text, **keys):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return TRACES[kind](path=str(path), **keys).jobs(catalogue, seed=0)

    return jobs


def test_elasticflows_jobs_count_their_steps(read):
    jobs = read("elasticflow", WITH_MODELS)
    assert jobs.name == ["a", "b"]
    assert jobs.submit_s.tolist() == [0, 60] and jobs.gpus.tolist() == [1, 8]
    assert [jobs.profiles[p].name for p in jobs.profile] == ["deepspeech2/32", "inception3/64"]
    assert jobs.work(Speeds(jobs.profiles, A100(), 8, 8)).tolist() == [3249, 48266]


def test_a_job_without_a_model_trains_a_drawn_one_for_its_duration(read):
    jobs = read("elasticflow", RAW)
    speeds = Speeds(jobs.profiles, A100(), 8, 8)
    assert jobs.work(speeds) == pytest.approx(np.array([50, 70]) * speeds.rate[jobs.profile, jobs.gpus, -1])
    assert read("elasticflow", RAW).profile.tolist() == jobs.profile.tolist()


def test_philly_is_sorted_and_its_clusters_can_be_chosen(read):
    jobs = read("philly", PHILLY)
    assert jobs.name == ["line 3", "line 2"] and jobs.submit_s.tolist() == [0, 2932]
    assert read("philly", PHILLY, cluster="11cb48").duration_s.tolist() == [66]
    with pytest.raises(InputError, match="has no job in the trace; did you mean '11cb48'"):
        read("philly", PHILLY, cluster="11cb4")


def test_openbs_pods_with_gpus_that_ran_are_jobs(read):
    jobs = read("openb", OPENB)
    assert jobs.name == ["p0"] and jobs.gpus.tolist() == [1] and jobs.duration_s.tolist() == [480]


def test_the_own_layout_takes_steps_or_durations_line_by_line(read):
    header = "job,submit_s,gpus,duration_s,steps,model,batch_size"
    jobs = read("csv", f"{header}\nx,0,1,100,,bert,64\ny,5,2,,700,vgg16,128\n")
    assert jobs.name == ["x", "y"]
    assert np.isnan(jobs.steps[0]) and jobs.steps[1] == 700
    assert read("csv", OWN).name == ["1", "2"]


def test_jobs_are_selected_and_submitted_faster(read):
    jobs = read("csv", OWN, load=2.0)
    assert jobs.submit_s.tolist() == [0, 2.5] and jobs.duration_s.tolist() == [100, 200]
    assert len(read("csv", OWN, first=1)) == 1
    assert read("csv", OWN, largest=1).gpus.tolist() == [1]


def test_synthetic_jobs_are_called_so_and_do_not_depend_on_the_runs_seed(catalogue):
    jobs, again = (TRACES["synthetic"](num_jobs=50).jobs(catalogue, seed) for seed in (0, 1))
    assert TRACES["synthetic"].synthetic and len(jobs) == 50
    assert np.array_equal(jobs.submit_s, again.submit_s) and np.array_equal(jobs.gpus, again.gpus)
    assert np.all(np.diff(jobs.submit_s) >= 0) and jobs.submit_s[0] == 0


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad", "message"),
    [
        ("elasticflow", RAW, ",50,", ",-50,", "line 2: duration = '-50' is not a duration above 0"),
        (
            "elasticflow",
            WITH_MODELS,
            "inception3",
            "inception",
            "line 3: model_name = 'inception' is not a model",
        ),
        ("elasticflow", RAW, "b,160", "b,60", "line 3: submission_time = '60' is before the line above"),
        ("elasticflow", RAW, "submission_time", "when", "has no column 'submission_time'"),
        ("elasticflow", WITH_MODELS, "batch_size", "batch_siz", "'batch_size'; did you mean 'batch_siz'?"),
        ("elasticflow", RAW, "a,100,50,4\nb,160,70,1\n", "", "holds no job"),
        ("elasticflow", RAW, ",4\n", ",0\n", "num_gpu = '0' is not a number of GPUs from 1 to 4,096"),
        ("elasticflow", WITH_MODELS, "3249", "0", "num_iteration = '0' is not a number of steps"),
        ("elasticflow", RAW, RAW, "", "the file is empty"),
        ("csv", OWN, "5,2,200", "5,2,", "line 3: duration_s = '' is not the one of steps and duration_s"),
        ("csv", OWN, "0,1,100", "-1,1,100", "line 2: submit_s = '-1' is not a time from 0"),
        (
            "csv",
            OWN,
            "5,2,",
            "1591728087,2,",
            "is not a time from 0 to 1e+09 s; subtract the first of them from all",
        ),
        (
            "openb",
            OPENB,
            "10,500,20",
            "1591728087,1591729087,1591728088",
            "; subtract the first of them from all",
        ),
        ("csv", OWN, "gpus", "gpu", "has no column 'gpus'; did you mean 'gpu'?"),
        ("philly", PHILLY, "2017-10-09 07:01:55", "yesterday", "timestamp = 'yesterday' is not a time"),
        ("openb", OPENB, ",500,20", ",5,20", "deletion_time = '5' is before the pod was there"),
    ],
)
def test_a_bad_trace_is_one_line(kind, text, good, bad, message, read):
    with pytest.raises(InputError) as error:
        read(kind, text.replace(good, bad))
    assert message in str(error.value) and len(str(error.value).splitlines()) == 1


def test_more_gpus_than_the_cluster_has_are_one_line(read):
    with pytest.raises(InputError, match="job '2' asks for 2 GPUs, the cluster has 1; give the cluster more"):
        read("csv", OWN).check_fit(1)


@pytest.mark.parametrize(
    ("kind", "path", "num_jobs"),
    [
        ("elasticflow", "elasticflow_traces/195job.csv", 195),
        ("elasticflow", "elasticflow_traces/cluster10.csv", 260),
        ("elasticflow", "elasticflow/philly_103959.csv", 876),
        ("philly", "pollux/traces/philly.csv.gz", 82_247),
        ("openb", "alibaba_openb/openb_pod_list_default.csv.gz", 6203),
    ],
)
def test_the_published_traces_are_read_whole(kind, path, num_jobs, published, catalogue):
    assert len(TRACES[kind](path=published(path)).jobs(catalogue, 0)) == num_jobs
