"""Forged checkpoints: whole by their checksum, and wrong in a header field, an array or what the rows say.

Whoever can write one can write any model and any history; what is promised is that it is continued as what it says, or
refused in a clear line.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest
from fuzzing import accepted_or_refused, hpctrip, many
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.record.checkpoint import read

INPUT = """
name = "forged"
[sites]
num_sites = 6
[workload]
train_samples = 60
test_samples = 20
[stop]
max_rounds = 3
[checkpoint]
every_rounds = 1
[watchdog]
enabled = false
"""
WILD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.sampled_from([2**31, 2**63, -(2**63), 10**400, 1e300, -1.0, 0.5, "", "x", "\x00\x1b[2J", "[" * 3000]),
    st.sampled_from([[], {}, [[]], {"a": {"b": {"c": 1}}}, ["x"], [["params", "<f4", [-1]]], [1, 2, 3]]),
)
NUMBERS = st.sampled_from([0, 1, -1, 5, 6, 99, 2**40, 2**63 - 1, -(2**63)])
SPECIAL = st.sampled_from([0.0, -1.0, 1e-320, 1e300, float("nan"), float("inf"), -float("inf"), 0.5])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """(folder, checkpoint's bytes) of a run that stopped after two of three rounds."""
    folder = tmp_path_factory.mktemp("forged")
    os.environ.setdefault("HPCTRIP_CACHE", str(folder / "cache"))
    (folder / "in.toml").write_text(INPUT)
    assert hpctrip("run", folder / "in.toml", "-o", "stop.max_rounds=2", "--out", folder / "run.h5").code == 0
    (folder / "run.h5").unlink()
    newest = max((folder / f"run.h5.ckpt{i}" for i in (0, 1)), key=lambda path: read(path).round)
    newest.rename(folder / "original")
    return folder, (folder / "original").read_bytes()


def parts(data):
    """(header, {array: its values}) of a checkpoint."""
    (length,) = struct.unpack("<Q", data[8:16])
    header, end = json.loads(data[16 : 16 + length]), 16 + length
    arrays = {}
    for name, dtype, shape in header["arrays"]:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        arrays[name] = np.frombuffer(data[end : end + size], dtype).reshape(shape).copy()
        end += size
    return header, arrays


def sealed(header, arrays):
    """The bytes of a checkpoint that says this."""
    text = json.dumps(header).encode()
    body = (
        b"HPCTRIP\x02" + struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in arrays.values())
    )
    return body + hashlib.blake2b(body, digest_size=32).digest()


def entries(arrays):
    return [[name, values.dtype.str, list(values.shape)] for name, values in arrays.items()]


@st.composite
def forged(draw, path):
    """The bytes of the checkpoint there after one to three lies."""
    header, arrays = parts(path.read_bytes())
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["values", "values", "shape", "drop"]))
        name = draw(st.sampled_from(sorted(arrays)))
        values = arrays[name].reshape(-1)
        if kind == "shape":
            arrays[name] = arrays[name][: draw(st.integers(0, 3))]
        elif kind == "drop":
            del arrays[name]
        elif values.size:
            wild = NUMBERS if values.dtype.kind == "i" else SPECIAL
            values[draw(st.integers(0, values.size - 1))] = draw(wild)
    header["arrays"] = entries(arrays)
    kind = draw(st.sampled_from(["nothing", "field", "about", "entry", "double"]))
    if kind == "field":
        header[draw(st.sampled_from([*header, "extra"]))] = draw(WILD)
    elif kind == "about":
        header["about"][draw(st.sampled_from(["created_utc", "starts", "made_with", "sources", "x"]))] = draw(
            WILD
        )
    elif kind == "entry":
        draw(st.sampled_from(header["arrays"]))[draw(st.integers(0, 2))] = draw(WILD)
    elif kind == "double":
        header["arrays"].append(draw(st.sampled_from(header["arrays"])))
    return sealed(header, arrays)


@many
@given(data=st.data())
def test_a_forged_checkpoint_is_continued_or_refused(original, data):
    folder, _ = original
    for path in folder.glob("run.h5*"):
        path.unlink()
    (folder / "run.h5.ckpt0").write_bytes(data.draw(forged(folder / "original")))
    accepted_or_refused("forged: watch", "watch", folder / "run.h5.ckpt0")
    accepted_or_refused("forged: retime", "retime", folder / "run.h5.ckpt0", "--out", folder / "run.h5.h5")
    # 3: what it says diverges
    accepted_or_refused("forged", "resume", folder / "run.h5", "-o", "stop.max_rounds=3", also=(3,))


def test_what_was_not_forged_goes_on(original):
    folder, whole = original
    assert sealed(*parts(whole)) == whole
    for path in folder.glob("run.h5*"):
        path.unlink()
    (folder / "run.h5.ckpt1").write_bytes(whole)
    ended = accepted_or_refused("forged", "resume", folder / "run.h5", "-o", "stop.max_rounds=3")
    assert ended.code == 0 and hpctrip("verify", folder / "run.h5").code == 0
