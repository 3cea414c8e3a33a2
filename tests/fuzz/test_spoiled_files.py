"""Spoiled files of every sort that hpctrip reads: accepted for what they say, or refused with exit code 2 and a clear
text; never a traceback, a hang, or a wrong result taken for a right one.

A new sort of file is one more test here: spoil it, give it to the commands that read it, and compare what was accepted
with the original.
"""

import gzip
import hashlib
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from fuzzing import PLAN, SMALL, SMALL_WORKLOADS, accepted_or_refused, hpctrip, many, spoiled, wild_inputs
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.app.experiment import Experiment
from hpctrip.record import checkpoint
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.schema import FORMAT
from hpctrip.record.verify import verify

# input files


@many
@given(data=st.data())
def test_a_spoiled_input_file(folder, data):
    path = folder / "spoiled.toml"
    path.write_bytes(data.draw(spoiled(SMALL.encode())))
    accepted_or_refused("input text", "check", path)


@many
@given(tables=wild_inputs(Experiment, SMALL, SMALL_WORKLOADS))
def test_a_wild_input_file(folder, tables):
    path = folder / "wild.toml"
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    checked = accepted_or_refused("input values", "check", path)
    ended = accepted_or_refused("planned values", *PLAN, path)
    if checked.code == 2:
        assert ended.code == 2, "what check refuses, nothing may accept"


@many
@given(tables=wild_inputs(Experiment, SMALL, SMALL_WORKLOADS))
def test_a_wild_run_ends_well_or_is_refused(folder, tables):
    path, out = folder / "run.toml", folder / "run.h5"
    for name, keys in {
        "stop": {"max_rounds": 2},
        "train": {"local_epochs": 1.0},
        "ranks": {"threads": 1},
    }.items():
        table = tables.get(name)
        tables[name] = (table if isinstance(table, dict) else {}) | keys
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    out.unlink(missing_ok=True)
    ended = accepted_or_refused("short runs", "run", path, "--out", out, also=(3,))
    if ended.code == 0:
        checked = hpctrip("verify", out)
        assert checked.code == 0, (tables, checked)


# CSV files

TRACE = "time,cell,pdu,measured_power_util,production_power_util\n" + "".join(
    f"{600_000_000 + 300_000_000 * step},a,pdu{pdu},{0.5 + 0.01 * step},{0.4 + 0.02 * step}\n"
    for pdu in (6, 7)
    for step in range(12)
)
SITES_CSV = "name,distance_mi\n" + "".join(f"s{i},{100 + 50 * i}\n" for i in range(6))
OUTAGES = "site,start_s,end_s\n0,0,50\n3,20,1000\n5,5.5,6\n"


@many
@given(data=st.data())
def test_a_spoiled_trace(folder, data):
    content = data.draw(spoiled(TRACE.encode()))
    path = folder / ("cella.csv.gz" if data.draw(st.booleans()) else "cella.csv")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    trace = ("-o", 'power.kind="trace"', "-o", f'power.path="{path}"')
    accepted_or_refused("traces", *PLAN, folder / "small.toml", *trace)


@many
@given(data=st.data())
def test_spoiled_tables_of_sites_and_outages(folder, data):
    for name, text in (("sites", SITES_CSV), ("outages", OUTAGES)):
        (folder / f"{name}.csv").write_bytes(data.draw(spoiled(text.encode()) | st.just(text.encode())))
    keys = ("sites.kind='csv'", f"sites.path='{folder}/sites.csv'", "faults.deadline_s=60")
    options = [part for key in (*keys, f"faults.outages='{folder}/outages.csv'") for part in ("-o", key)]
    small = folder / "no_sites.toml"
    small.write_text(SMALL.replace("[sites]\nnum_sites = 6\n", ""))
    accepted_or_refused("site tables", *PLAN, small, *options)


# IDX files


def _idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def idx_files():
    rng = np.random.default_rng(0)
    files = {}
    for part, count in (("train", 40), ("test", 10)):
        files[f"emnist-digits-{part}-images-idx3-ubyte"] = _idx(
            rng.integers(0, 256, (count, 28, 28), np.uint8)
        )
        files[f"emnist-digits-{part}-labels-idx1-ubyte"] = _idx(rng.integers(0, 10, count, np.uint8))
    return files


@many
@given(data=st.data())
def test_spoiled_idx_files(folder, cache, idx_files, data):
    directory = folder / "idx"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(cache / "emnist", ignore_errors=True)
    directory.mkdir()
    packed, victim = data.draw(st.booleans()), data.draw(st.sampled_from(sorted(idx_files)))
    spoiled_content = b""
    for name, content in idx_files.items():
        content = gzip.compress(content, mtime=0) if packed else content
        if name == victim:
            content = spoiled_content = data.draw(spoiled(content))
        (directory / f"{name}{'.gz' if packed else ''}").write_bytes(content)
    workload = ("workload.split='digits'", f"workload.data='{directory}'", "partition.kind='iid'")
    (folder / "idx.toml").write_text("[sites]\nnum_sites = 4\n[stop]\nmax_rounds = 2\n")
    options = [part for key in workload for part in ("-o", key)]
    ended = accepted_or_refused("IDX files", *PLAN, folder / "idx.toml", *options)
    if ended.code == 0 and packed and spoiled_content.startswith(b"\x1f\x8b"):
        assert gzip.decompress(spoiled_content) == idx_files[victim], "gzip's checksum was not looked at"


# results files


@pytest.fixture(scope="module")
def results(folder, cache):
    """A sound results file, with candidates and faults in it."""
    path = folder / "sound.h5"
    ended = hpctrip(
        "run", folder / "small.toml", "--out", path, "--overwrite", "-o", "stop.max_rounds=4",
        "-o", "faults.deadline_s=20", "-o", "faults.lost_fraction=0.3",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return path


@many
@given(data=st.data())
def test_a_spoiled_results_file(folder, results, data):
    sound, path = results, folder / "spoiled.h5"
    path.write_bytes(data.draw(spoiled(sound.read_bytes())))
    shown = accepted_or_refused("show", "show", path)
    verified = accepted_or_refused("verify", "verify", path)
    accepted_or_refused("diff", "diff", sound, path, also=(1,))
    accepted_or_refused("export", "export", path, folder / "csv", "--overwrite")
    accepted_or_refused("merge", "merge", folder / "merged.h5", sound, path)
    if verified.code == 0:
        assert shown.code == 0
        assert diff(open_run(sound), open_run(path)) == []
        assert repr(open_run(sound).meta) == repr(open_run(path).meta)  # NaN is like itself


# checkpoints, and results files to go on with

BESIDE = ("", *checkpoint.SUFFIXES)
EVERY_ROUND = ("-o", "checkpoint.every_rounds=1", "-o", "watchdog.enabled=false")


@pytest.fixture(scope="module")
def digest(folder, cache):
    """Of four rounds in one piece. Beside it lies of3.h5, a run that stopped after three."""
    for rounds in (3, 4):
        options = (*EVERY_ROUND, "-o", f"stop.max_rounds={rounds}", "--out", folder / f"of{rounds}.h5")
        assert hpctrip("run", folder / "small.toml", *options).code == 0
    return open_run(folder / "of4.h5").meta["params_digest"]


def resealed(data):
    """With the checksum of what it now holds: past the seal, the parser's own checks are all there is."""
    return data[:-32] + hashlib.blake2b(data[:-32], digest_size=32).digest()


@many
@given(data=st.data())
def test_resuming_beside_spoiled_checkpoints_and_results(folder, digest, data):
    path, reseal = folder / "resumed.h5", data.draw(st.booleans())
    given = data.draw(st.sampled_from(BESIDE))
    victims = data.draw(st.sets(st.sampled_from(BESIDE), min_size=1))
    whole, results = set(), b""
    for suffix in BESIDE:
        original = content = Path(f"{folder}/of3.h5{suffix}").read_bytes()
        if suffix in victims:
            content = data.draw(spoiled(original))
            content = resealed(content) if reseal and suffix else content
        whole |= {suffix} if content == original else set()
        results = results if suffix else content
        Path(f"{path}{suffix}").write_bytes(content)
    name, also = ("resealed", (3,)) if reseal else ("resume", ())
    ended = accepted_or_refused(name, "resume", f"{path}{given}", "-o", "stop.max_rounds=4", also=also)
    if not reseal:
        possible = given in whole if given else bool(whole - {""})
        # what no longer looks like results may be a file of something else, which is not replaced
        ours = not results or (FORMAT.encode() in results and b"OHDR" in results)
        possible &= ours
        assert ended.code == (0 if possible else 2)
        if possible:
            found = open_run(path)
            assert verify(found) == [] and found.meta["params_digest"] == digest
    if ended.code == 2:
        for suffix in whole:
            assert Path(f"{path}{suffix}").read_bytes() == Path(f"{folder}/of3.h5{suffix}").read_bytes()
