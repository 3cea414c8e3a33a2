"""A run records what it read; who goes on with it, replays or compares it is told where that has changed."""

import shutil
import struct

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.io import digest
from hpctrip.cli.keys_reference import described_fields
from hpctrip.config.component import Registry, owner_of
from hpctrip.config.sources import Reads
from hpctrip.figures.common.reading import traces_of
from hpctrip.record.checkpoint import newest
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.runner.experiment import Experiment, read_input, resolve
from hpctrip.runner.provenance import world_sources

ROUNDS, MORE = ("-ostop.max_rounds=2",), ("-ostop.max_rounds=3",)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def emnist(folder, part):
    rng, data = np.random.default_rng(part), folder / "data"
    data.mkdir(exist_ok=True)
    for name, count in (("train", 200), ("test", 50)):
        start = data / f"emnist-digits-{name}"
        images = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
        start.with_name(f"{start.name}-images-idx3-ubyte").write_bytes(idx(images))
        labels = rng.integers(10, size=count, dtype=np.uint8)
        start.with_name(f"{start.name}-labels-idx1-ubyte").write_bytes(idx(labels))


def sites(folder, part):
    rows = "".join(f"{100 + 300 * site}\n" for site in range((10, 6)[part]))
    (folder / "sites.csv").write_text(f"distance_mi\n{rows}")


def trace(folder, part):
    (folder / "traces").mkdir(exist_ok=True)
    for name, util in (("a", (0.3, 0.31)[part]), ("b", 0.5)):
        rows = "".join(f"{600_000_000 + step * 300_000_000},{name},pdu1,{util}\n" for step in range(20))
        text = f"time,cell,pdu,production_power_util\n{rows}"
        (folder / f"traces/cell{name}_pdu1.csv").write_text(text)


def outages(folder, part):
    (folder / "outages.csv").write_text(f"site,start_s,end_s\n9,1000000,{(2e6, 3e6)[part]}\n")


EMNIST = ["workload.data='data'", "workload.split='digits'", "workload.train_samples=150"]
SITES = ["sites={kind='csv', path='sites.csv'}"]
READ = {
    # {what a run reads: (key, function that writes its files with one of two contents, lines)}
    "training data": ("workload.data", emnist, EMNIST),
    "sites": ("sites.path", sites, SITES),
    "sites under a policy that replaces them": ("sites.path", sites, [*SITES, "policy.kind=centralized"]),
    "a trace": ("power.path", trace, ["power={kind='trace', path='traces'}"]),
    "outages": ("faults.outages", outages, ["faults.outages='outages.csv'", "faults.deadline_s=1e5"]),
}
REPLAYED = [what for what in READ if what not in ("training data", "sites under a policy that replaces them")]


@pytest.fixture
def begun(hpctrip, tiny, folder):
    """`begun(what) -> (key, command, change)`: a run of two rounds that read it, and what gives it other content."""

    def make(what):
        key, write, lines = READ[what]
        write(folder, 0)
        small = ["workload.test_samples=50", *lines, "checkpoint.every_rounds=1"]
        command = ("run", tiny, *(f"-o{line}" for line in small), "--out", "run.h5")
        ended = hpctrip(*command, *ROUNDS)
        assert ended.code == 0, ended.err
        return key, command, lambda: write(folder, 1)

    return make


@pytest.mark.parametrize("what", READ)
def test_a_run_is_continued_and_verified_only_with_unchanged_files(hpctrip, begun, what):
    key, command, change = begun(what)
    recorded = [text for text in newest("run.h5")[0].metadata["sources"] if text.startswith(f"{key} ")]
    assert len(recorded) == 1 and recorded[0] in open_run("run.h5").meta["sources"]
    _, path, before = recorded[0].replace("blake2b:", "").split()
    verify = ("verify", "run.h5", "--data", ".")
    if what in REPLAYED:
        assert hpctrip(*verify).out == "run.h5: ok\n"
    assert hpctrip("resume", "run.h5", *MORE, "--out", "on.h5").code == 0
    assert len(open_run("on.h5").rounds) == 3

    change()
    changed = f"{key}: {path} has the digest"
    hpctrip(*command, *MORE, "--resume").check_refused([changed, f"in run.h5.ckpt1 it has {before}"])
    hpctrip("resume", "run.h5", *MORE).check_refused([changed, f"in run.h5.ckpt1 it has {before}"])
    hpctrip("retime", "run.h5", "--out", "new.h5").check_refused([changed, f"in run.h5 it has {before}"])
    if what in REPLAYED:
        hpctrip(*verify).check_refused([f"run.h5: {key}: ", "the run read one of"])
    assert len(open_run("run.h5").rounds) == 2


def test_retime_opens_a_file_that_the_user_names_instead(hpctrip, begun, folder):
    _, _, change = begun("a trace")
    change()
    shutil.move("traces", "others")
    path = "-opower.path='others'"
    assert hpctrip("retime", "run.h5", path, "--out", "new.h5").code == 0


def test_a_figure_of_changed_traces_is_refused(begun):
    _, _, change = begun("a trace")
    run = open_run("run.h5")
    assert len(traces_of([run]))
    change()
    with pytest.raises(InputError, match=r"power\.path: traces has the digest"):
        traces_of([run])


def test_diff_reports_changed_files_of_the_same_name(begun, hpctrip, folder):
    _, command, change = begun("outages")
    change()
    again = (*command[:-1], "again.h5")
    assert hpctrip(*again, *ROUNDS).code == 0
    (line,) = diff(open_run("run.h5"), open_run("again.h5"))
    assert str(line).startswith("read: faults.outages: 'outages.csv' ")


def test_every_workload_has_digests_of_its_data(tiny_workload, tiny):
    workload = read_input([tiny], tiny_workload).experiment.workload
    digests = workload.checked_task(0).digests
    assert digests.keys() == ({"data", "model"} if workload.kind == "llm" else {"data"})
    assert workload.checked_task(0).digests == digests


def test_diff_compares_generated_data_only_under_the_same_input(trained):
    run = trained("stop.max_rounds=1")
    (made,) = (text for text in run.meta["sources"] if text.startswith("workload.data - blake2b:"))
    other = trained("stop.max_rounds=1", "seed=1")
    assert made not in other.meta["sources"]
    assert not [line for line in diff(run, other) if line.where == "read"]


def test_the_recorded_digest_of_a_file_is_that_of_its_bytes(folder):
    sites(folder, 0)
    run_input = resolve({"sites": {"kind": "csv", "path": "sites.csv"}})
    (source,) = world_sources(run_input)
    assert source == ("sites.path", "sites.csv", digest((folder / "sites.csv").read_bytes()))


def test_a_folder_of_traces_counts_by_its_traces_alone(folder):
    trace(folder, 0)
    run_input = resolve({"power": {"kind": "trace", "path": "traces"}})
    before = world_sources(run_input)
    (folder / "traces/README").write_text("how to read them")
    assert world_sources(run_input) == before
    (folder / "traces/cella_pdu1.csv").rename(folder / "traces/cellc_pdu1.csv")
    assert world_sources(run_input) != before


def test_generated_data_with_another_digest_are_a_warning(tmp_path, monkeypatch, hpctrip, tiny):
    out = tmp_path / "run.h5"
    assert hpctrip("run", tiny, *ROUNDS, "--out", out).code == 0
    from hpctrip.learn.data import cached

    monkeypatch.setattr(cached, "digest_of", lambda folder: "f" * 32)
    ended = hpctrip("resume", out, *MORE)
    assert (
        ended.code == 0
        and f"warning: the data of workload.data, made here, have the digest {'f' * 32}" in ended.out
    )


def test_every_key_that_describes_files_is_declared_as_reading_them():
    declared, suspected = set(), set()
    classes = [("", Experiment)]
    for prefix, owner in classes:
        for name, field in described_fields(owner).items():
            if isinstance(registry := owner_of(field), Registry):
                classes += [(f"{name}.{kind}.", cls) for kind, cls in registry.items()]
            elif isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                classes.append((f"{prefix}{name}.", field.annotation))
            elif any(isinstance(mark, Reads) for mark in field.metadata):
                declared.add(prefix + name)
            elif (
                "str" in str(field.annotation)
                and not name.endswith("_column")
                and any(
                    word in (field.description or "").lower() for word in (" file", "folder", "directory")
                )
            ):
                suspected.add(prefix + name)
    assert suspected <= {"name", "plugins", "sites.csv.facts", "store.path"}
    data = {f"workload.{kind}.data" for kind in ("emnist", "femnist", "shakespeare", "speech", "llm")}
    others = {"sites.csv.path", "power.trace.path", "faults.outages"}
    assert declared >= data | others | {"workload.speech.client_map", "workload.llm.model"}
