"""Damaged files and mistyped inputs are accepted for what they say, or refused: exit code 2 and a clear line for each
fault.

A fault is a traceback, a crash, a hang, or an exit code other than 0 and 2. HPCTRIP_FUZZ=1000 draws that many new
examples of each kind of file. A new kind is an entry in one of the tables below.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.record.checkpoint import SUFFIXES
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.results_file import open_results
from hpctrip.record.verify import verify
from hpctrip.runner.experiment import Experiment
from hpctrip.studies.studies import read_studies

sys.path.insert(0, str(Path(__file__).parent))
from damage import damaged, many, mistyped_inputs, mistyped_tables

SMALL = """
name = "fuzz"
sites = {kind = "uniform", num_sites = 6}
workload = {kind = "emnist", train_samples = 60, test_samples = 20}
policy = {kind = "static", k = 2}
stop.max_rounds = 2
watchdog.enabled = false
"""
CLUSTER = """
cluster.num_nodes = 2
jobs = {kind = "synthetic", num_jobs = 6, span_s = 3600, median_s = 600, longest_s = 3600, largest = 8}
"""
STUDY = """
name = "two"
title = "Two cohort sizes"
inputs = ["small.toml"]
seeds = [0]
[[axis]]
key = "policy.k"
values = [2, 3]
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Damaged data must not stay in the session's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCTRIP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder of the commands."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("fuzz")
        patch.chdir(folder)
        yield folder


def options(*lines):
    return [word for line in lines for word in ("-o", line)]


@pytest.fixture
def check(hpctrip):
    """`check(*words, also=())`: run a command, which must succeed or refuse its input, or end with a code in `also`."""

    def run(*words, also=()):
        ended = hpctrip(*words)
        assert ended.code in (0, 2, *also), (words, ended)
        assert "Traceback" not in ended.err, ended.err
        if ended.code == 2:
            assert ended.err.startswith(("hpctrip: ", "Usage: ", "Error: ")), ended.err
            assert len(ended.err.encode()) < 4000, "a report is read on a screen"
        return ended

    return run


# inputs


@many
@given(data=st.data())
@pytest.mark.parametrize("kind", ["run", "cluster", "study"])
def test_the_text_of_an_input(kind, folder, check, data):
    sound = {"run": SMALL, "cluster": CLUSTER, "study": STUDY}[kind]
    Path("small.toml").write_text(SMALL)
    Path("input.toml").write_bytes(data.draw(damaged(sound.encode())))
    words = {"run": ["check"], "cluster": ["cluster", "check"], "study": ["study", "status"]}[kind]
    check(*words, "input.toml")


@many
@given(data=st.data())
@pytest.mark.parametrize("kind", ["run", "cluster"])
def test_the_values_of_an_input(kind, folder, check, data):
    root, sound, words = {
        "run": (Experiment, SMALL, ["check"]),
        "cluster": (ClusterScenario, CLUSTER, ["cluster", "check"]),
    }[kind]
    Path("input.toml").write_text(tomli_w.dumps(data.draw(mistyped_inputs(root, sound))), encoding="utf-8")
    check(*words, "input.toml")


# tables

_TRACE = "time,cell,pdu,measured_power_util,production_power_util\n" + "".join(
    f"{600_000_000 + 300_000_000 * step},a,pdu6,{0.5 + 0.01 * step},{0.4 + 0.02 * step}\n"
    for step in range(12)
)
_RUN, _CLUSTER = ["check", "small.toml"], ["cluster", "check", "cluster.toml"]
TABLES = {
    "sites": ("name,distance_mi\n" + "".join(f"s{i},{100 + 50 * i}\n" for i in range(6)),
              [*_RUN, *options("sites={kind='csv', path='it.csv'}")]),
    "outages": ("site,start_s,end_s\n0,0,50\n3,20,1000\n5,5.5,6\n",
                [*_RUN, *options("faults={deadline_s=60, outages='it.csv'}")]),
    "trace": (_TRACE, [*_RUN, *options("power={kind='trace', path='it.csv'}")]),
    "curve": ("watts,samples_per_second\n100,1\n150,1.4\n200,1.6\n",
              [*_RUN, *options("throughput={kind='curve', path='it.csv'}")]),
    "signal": ("time,per_kwh\n" + "".join(f"2022-01-01 0{i}:00,{100 + i}\n" for i in range(6)),
               [*_RUN, *options("carbon={kind='csv', path='it.csv'}")]),
    "electricity-maps": ("Datetime (UTC),Carbon Intensity gCO₂eq/kWh (LCA),Zone Id\n"
                         + "".join(f"2022-01-01 0{i}:00,{100 + i},NO\n" for i in range(6)),
                         [*_RUN, *options("carbon={kind='electricity-maps', path='it.csv'}")]),
    "jobs": ("submit_s,gpus,duration_s\n0,1,100\n5,2,200\n", [*_CLUSTER, *options("jobs={kind='csv', path='it.csv'}")]),
    "jobs of ElasticFlow": (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "0,0,500,vgg16,900,256,1,300\n1,200,800,resnet50,900,64,4,300\n",
        [*_CLUSTER, *options("jobs={kind='elasticflow', path='it.csv'}")]),
    "jobs of Philly": ("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-03 01:00:00,300,1,300,a\n"
                       "2017-10-03 00:50:00,500,2,1000,b\n",
                       [*_CLUSTER, *options("jobs={kind='philly', path='it.csv'}")]),
    "throughputs": ("global_batch_size,1,2,4,8\n64,10,18,30,40\n128,5,9.5,17,28\n", ["cluster", "fit", "it.csv"]),
    "power limit": ("time_s,power_w\n0,5000\n600,2000\n",
                    [*_CLUSTER, *options("budget={kind='power', path='it.csv'}")]),
}  # fmt: skip
"""{kind: (sound table, the command that reads it.csv)}."""


@pytest.fixture
def inputs(folder):
    Path("small.toml").write_text(SMALL)
    Path("cluster.toml").write_text(CLUSTER)


@pytest.mark.parametrize("kind", TABLES)
def test_the_sound_tables_are_accepted(kind, inputs, check):
    text, words = TABLES[kind]
    Path("it.csv").write_text(text, encoding="utf-8")
    ended = check(*words)
    assert ended.code == 0, ended.err


@many
@given(data=st.data())
@pytest.mark.parametrize("kind", TABLES)
def test_a_table(kind, inputs, check, data):
    text, words = TABLES[kind]
    content = data.draw(mistyped_tables(text) | damaged(text.encode()))
    if data.draw(st.integers(0, 3)) == 0:
        content = data.draw(damaged(gzip.compress(text.encode(), mtime=0)))
    Path("it.csv").write_bytes(content)
    check(*words)


# data of workloads


def _idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def _wav():
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(16_000) / 20), 16_000, format="WAV")
    return file.getvalue()


def _leaf(x, y):
    samples = {"x": [x] * 11, "y": [y] * 11}
    content = {"users": ["a", "b"], "num_samples": [11, 11], "user_data": {"a": samples, "b": samples}}
    return json.dumps(content).encode()


_PIXELS = np.random.default_rng(0).integers(0, 256, (20, 28, 28), np.uint8)
_IMAGES, _LABELS = _idx(_PIXELS), _idx(np.arange(20, dtype=np.uint8) % 10)
_TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. "
DATA = {
    "IDX images": ("emnist", {"split": "digits"}, {
        "emnist-digits-train-images-idx3-ubyte": _IMAGES, "emnist-digits-train-labels-idx1-ubyte": _LABELS,
        "emnist-digits-test-images-idx3-ubyte": _IMAGES, "emnist-digits-test-labels-idx1-ubyte": _LABELS}),
    "LEAF's images": ("femnist", {}, {"all.json": _leaf([0.5] * 784, 3)}),
    "LEAF's texts": ("shakespeare", {}, {
        "train/texts.json": _leaf(_TEXT[:80], "e"), "test/texts.json": _leaf(_TEXT[:80], "e")}),
    "plays": ("shakespeare", {}, {"play.txt": (_TEXT * 40).encode(), "other.txt": (_TEXT * 40).encode()}),
    "sounds": ("speech", {}, {f"{word}/{n}_nohash_0.wav": _wav() for word in ("yes", "no") for n in "0123456789"}),
}  # fmt: skip
"""{kind: (workload, its keys, {file: content})}."""


@many
@given(data=st.data())
@pytest.mark.parametrize("kind", DATA)
def test_a_data_file(kind, inputs, check, data, tmp_path_factory):
    workload, keys, files = DATA[kind]
    place = tmp_path_factory.mktemp("data")
    victim = data.draw(st.sampled_from(sorted(files)))
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data.draw(damaged(content)) if name == victim else content)
    table = tomli_w.dumps({"workload": {"kind": workload, "data": str(place), **keys}})
    Path("data.toml").write_text(table)
    check("prepare", "data.toml")


# results files, checkpoints and ledgers


@pytest.fixture(scope="module")
def run(folder, hpctrip):
    """A finished run with its checkpoints, and the digest of its model."""
    Path("small.toml").write_text(SMALL)
    words = options("checkpoint.every_rounds=1", "faults.deadline_s=20", "faults.lost_fraction=0.3")
    assert hpctrip("run", "small.toml", *words, "--out", "sound.h5").code == 0
    return {suffix: Path(f"sound.h5{suffix}").read_bytes() for suffix in ("", *SUFFIXES)}


@many
@given(data=st.data())
def test_a_results_file(run, check, data):
    Path("damaged.h5").write_bytes(data.draw(damaged(run[""])))
    verified = check("verify", "damaged.h5")
    assert check("show", "damaged.h5").code == verified.code
    check("diff", "sound.h5", "damaged.h5", also=(1,))
    check("merge", "merged.h5", "sound.h5", "damaged.h5")
    if verified.code == 0:  # the damage is in bytes that hold nothing
        assert diff(open_run("sound.h5"), open_run("damaged.h5")) == []


@many
@given(data=st.data())
def test_a_results_file_of_a_cluster(inputs, hpctrip, check, data):
    if not Path("cluster.h5").exists():
        assert hpctrip("cluster", "cluster.toml", "--out", "cluster.h5").code == 0
    Path("damaged.h5").write_bytes(data.draw(damaged(Path("cluster.h5").read_bytes())))
    verified = check("verify", "damaged.h5")
    assert check("show", "damaged.h5").code == verified.code
    if verified.code == 0:
        assert diff(open_results("cluster.h5"), open_results("damaged.h5")) == []


@many
@given(data=st.data())
def test_going_on_beside_damaged_files(run, check, data):
    """It goes on from the newest whole checkpoint to the same end, or is refused and touches nothing."""
    victims = data.draw(st.sets(st.sampled_from(sorted(run)), min_size=1))
    contents = {
        suffix: data.draw(damaged(run[suffix])) if suffix in victims else run[suffix] for suffix in run
    }
    for suffix, content in contents.items():
        Path(f"resumed.h5{suffix}").write_bytes(content)
    ended = check("resume", "resumed.h5")
    whole = [suffix for suffix in SUFFIXES if contents[suffix] == run[suffix]]
    assert ended.code == 2 or whole
    if ended.code == 0:
        found = open_run("resumed.h5")
        assert verify(found) == [] and diff(open_run("sound.h5"), found) == []
    else:
        assert {suffix: Path(f"resumed.h5{suffix}").read_bytes() for suffix in run} == contents
    check("export", f"resumed.h5{SUFFIXES[0]}", "--model", "model.safetensors", "--overwrite")


@pytest.fixture(scope="module")
def ledger(folder, hpctrip):
    """The tables of a study of two runs, which are made in this process: its ledger, and the curves beside it."""
    Path("small.toml").write_text(SMALL)
    Path("study.toml").write_text(STUDY)
    (study,) = read_studies("study.toml", Path("made"))
    for entry, k in zip(study.entries, (2, 3), strict=True):
        words = ["small.toml", *options(f"policy.k={k}", "seed=0"), "--out", f"made/runs/{entry.identity}.h5"]
        assert hpctrip("run", *words).code == 0
    ended = hpctrip("study", "study.toml", "--out", "made", "--jobs", 1)
    assert ended.code == 0, ended.err
    return {path.name: path.read_text() for path in sorted(Path("made/two").glob("*.csv"))}


@many
@given(data=st.data())
def test_a_ledger_and_its_curves(ledger, check, data, tmp_path_factory):
    place = tmp_path_factory.mktemp("ledger")
    victim = data.draw(st.sampled_from(["ledger.csv", "ledger_curves.csv"]))
    for name, text in ledger.items():
        spoiled = mistyped_tables(text) | damaged(text.encode())
        (place / name).write_bytes(data.draw(spoiled) if name == victim else text.encode())
    check("study", "import", "study.toml", "--out", place / "out", place / "ledger.csv")
