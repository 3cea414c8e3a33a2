"""Damaged and mistaken data files: archives, sounds, IDX and LEAF's JSON. Accepted for what is in them, or
refused in one line."""

import bz2
import copy
import gzip
import io
import json
import lzma
import os
import shutil
import struct
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fuzzing import COUNTS, many, spoiled
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.base.errors import InputError
from hpctrip.learn.data.files import read_idx
from hpctrip.learn.data.mfcc import mfcc
from hpctrip.learn.data.play_text import encode
from hpctrip.learn.data.speech_files import read_clips
from hpctrip.learn.workloads.femnist import Femnist
from hpctrip.learn.workloads.shakespeare import Shakespeare


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HPCTRIP_CACHE", str(tmp_path / "cache"))


@dataclass(frozen=True)
class Content:
    """Of a file."""

    content: bytes = field(repr=False)
    oddities: list
    """What is odd about it; nothing: it is sound, though it may be of no use."""


def accepted(test, read):
    """What is read, or None where it is refused, in one line; counted."""
    try:
        found = read()
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000
        found = None
    counts = COUNTS.setdefault(test, {})
    code = 2 if found is None else 0
    counts[code] = counts.get(code, 0) + 1
    return found


# sounds

TONE = np.sin(np.arange(16_000) / 16_000 * 2 * np.pi * 440) / 2


def sound(format, **options):
    buffer = io.BytesIO()
    soundfile.write(buffer, TONE, 16_000, format=format, **options)
    return buffer.getvalue()


SOUNDS = {"wav": sound("WAV"), "flac": sound("FLAC"), "float.wav": sound("WAV", subtype="FLOAT")}


@st.composite
def sounds(draw):
    """A sound, cut or spoiled anywhere."""
    name = draw(st.sampled_from(sorted(SOUNDS)))
    content = SOUNDS[name]
    if draw(st.booleans()):
        return name, draw(spoiled(content))
    return name, content[: draw(st.integers(0, len(content)))]


@many
@given(given_sound=sounds())
def test_a_sound(tmp_path_factory, given_sound):
    name, content = given_sound
    folder = tmp_path_factory.getbasetemp() / "sounds"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "yes").mkdir(parents=True)
    (folder / "yes" / f"0a0a_nohash_0.{name.rpartition('.')[2]}").write_bytes(content)
    clips = accepted("sounds", lambda: read_clips(folder, None))
    if clips is not None:
        assert clips.features.shape == (1, 98, 40) and np.isfinite(clips.features).all()
        if content == SOUNDS[name]:
            assert np.array_equal(clips.features[0], mfcc(soundfile.read(io.BytesIO(content))[0]))


# archives of clips

NAMES = [
    "set/yes/0a0a_nohash_0.wav", "/yes/1b1b_nohash_0.wav", "../../yes/2c2c_nohash_0.wav", "no/3d3d_nohash_0.wav",
    "yes/hello.wav", "testing_list.txt", "a" * 300 + "/yes/4e4e_nohash_0.wav", "_x/5f5f_nohash_0.wav",
    "more.txt", "yes", "",
]  # fmt: skip
KINDS = [
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.CONTTYPE,
]
PACKERS = {"": bytes, "gz": lambda data: gzip.compress(data, 1), "bz2": bz2.compress, "xz": lzma.compress}


@st.composite
def archives(draw):
    """An archive of sounds, lists and odd members, perhaps wounded."""
    blocks, oddities = [], []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(NAMES if draw(st.integers(0, 4)) == 0 else NAMES[:4]))
        kind = draw(st.sampled_from(KINDS)) if draw(st.integers(0, 3)) == 0 else tarfile.REGTYPE
        content = draw(st.sampled_from([*[SOUNDS["wav"]] * 6, b"yes/0a0a_nohash_0.wav\n", b""]))
        header = tarfile.TarInfo(name)
        header.type, header.size, header.linkname = kind, len(content), "yes/0a0a_nohash_0.wav"
        if kind != tarfile.REGTYPE:
            oddities.append(kind)
        blocks.append(header.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape"))
        blocks.append(content + bytes(-len(content) % 512))
    data = b"".join(blocks) + bytes(10240)
    packed = PACKERS[draw(st.sampled_from(sorted(PACKERS)))](data)
    wound = draw(st.sampled_from(["none", "none", "inside", "outside", "cut", "cut inside", "more"]))
    if wound == "inside":
        packed = PACKERS[draw(st.sampled_from(["", "gz"]))](draw(spoiled(data)))
    elif wound == "outside":
        packed = draw(spoiled(packed))
    elif wound == "cut":
        packed = packed[: draw(st.integers(0, len(packed)))]
    elif wound == "cut inside":
        packed = gzip.compress(data[: draw(st.integers(0, len(data) - 10240))], 1)
    elif wound == "more":
        packed += draw(st.binary(max_size=600))
    return Content(packed, oddities + [wound] * (wound != "none"))


@many
@given(archive=archives())
def test_an_archive_of_clips(tmp_path_factory, archive):
    folder = tmp_path_factory.getbasetemp() / "archives"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "clips.tar"
    path.write_bytes(archive.content)
    clips = accepted("clip archives", lambda: read_clips(path, None))
    assert os.listdir(folder) == ["clips.tar"], "nothing is unpacked"
    if clips is None:
        return
    assert np.isfinite(clips.features).all()
    if not archive.oddities:  # the names are those that an independent reader finds
        with tarfile.open(path) as tar:
            there = {Path(member.name) for member in tar if member.name.endswith(".wav")}
        expected = {f"{name.parts[-2]}/{name.stem}" for name in there if name.parts[-2][0] != "_"}
        assert clips.names == sorted(expected)


# IDX


@many
@given(data=st.data())
def test_an_idx_file(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "idx"
    num_dimensions = data.draw(st.integers(1, 3))
    dimension = st.sampled_from([0, 1, 2, 3, 28, 2**16, 2**20])
    shape = data.draw(st.lists(dimension, min_size=num_dimensions, max_size=num_dimensions))
    size = int(np.prod([int(n) for n in shape], dtype=object))
    body = bytes(range(256)) * (min(size, 10_000) // 256 + 1)
    length = size if size < 10_000 else data.draw(st.integers(0, 300))
    content = bytes([0, 0, 8, num_dimensions]) + struct.pack(f">{num_dimensions}I", *shape) + body[:length]
    wound = data.draw(st.sampled_from(["none", "none", "spoiled", "packed", "packed and cut"]))
    if wound == "spoiled":
        content = data.draw(spoiled(content))
    elif wound.startswith("packed"):
        content = gzip.compress(content)
        content = content[: data.draw(st.integers(0, len(content)))] if wound == "packed and cut" else content
    path.write_bytes(content)
    found = accepted("IDX headers", lambda: read_idx(path, num_dimensions))
    if found is not None:
        plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        start = 4 + 4 * num_dimensions
        assert found.shape == struct.unpack(f">{num_dimensions}I", plain[4:start])
        assert found.tobytes() == plain[start:]


# LEAF's JSON

ODD_JSON = [
    None, True, False, 0, 1, -1, 0.5, 1e300, float("nan"), float("inf"), 10**400, "", "x", "0.5", "nan", "\ud800", [],
    [[]], {}, [True], ["0.5"], [None], {"x": []}, "x" * 3000,
]  # fmt: skip
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. "


@st.composite
def leaf_files(draw, x, y):
    """A file of LEAF's with up to three odd values anywhere, or a wound of another sort."""
    samples = {"x": [x] * 11, "y": [y] * 11}
    content = {"users": ["a", "b"], "num_samples": [11, 11], "user_data": {"a": samples, "b": samples}}
    content = json.loads(json.dumps(content))
    places = [
        ["users"], ["users", 0], ["num_samples"], ["num_samples", 1], ["user_data"], ["user_data", "a"],
        ["user_data", "b", "x"], ["user_data", "b", "x", 0], ["user_data", "b", "y"], ["user_data", "b", "y", 1],
        *([["user_data", "a", "x", 1, 5]] if isinstance(x, list) else []),
    ]  # fmt: skip
    oddities = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        *way, last = draw(st.sampled_from(places))
        odd = copy.deepcopy(draw(st.sampled_from(ODD_JSON)))
        oddities.append((way, last, odd))
        inner = content
        try:
            for key in way:
                inner = inner[key]
            inner[last] = odd
        except (LookupError, TypeError):
            continue  # it is odd already on the way
    text = json.dumps(content)
    wound = draw(st.sampled_from(["none", "none", "none", "twice", "deep", "digits", "spoiled"]))
    if wound == "twice":
        text = text.replace('"user_data": {', '"user_data": {"a": {"x": [], "y": []}, ')
    elif wound == "deep":
        text = text.replace(": [", ": " + "[" * draw(st.sampled_from([40, 1500, 100_000])), 1)
    elif wound == "digits":
        text = text.replace("11", "1" * 5000, 1)
    data = text.encode()
    return Content(
        draw(spoiled(data)) if wound == "spoiled" else data, oddities + [wound] * (wound != "none")
    )


def users_of(content):
    """{user: (x, y)} by an independent reading of a file that was accepted."""
    whole = json.loads(content)
    assert whole["num_samples"] == [len(whole["user_data"][user]["y"]) for user in whole["users"]]
    assert {type(count) for count in whole["num_samples"]} <= {int}
    assert len(set(whole["users"])) == len(whole["users"])
    return {user: (whole["user_data"][user]["x"], whole["user_data"][user]["y"]) for user in whole["users"]}


@many
@given(leaf=leaf_files([0.5] * 784, 3), packed=st.booleans())
def test_a_leaf_file_of_characters(tmp_path_factory, leaf, packed):
    path = tmp_path_factory.getbasetemp() / "femnist.json"
    path.write_bytes(gzip.compress(leaf.content) if packed else leaf.content)
    task = accepted("LEAF characters", lambda: Femnist(data=str(path)).task(0))
    assert leaf.oddities or task is not None
    if task is not None:
        users = users_of(leaf.content)
        labels = sorted(label for _, y in users.values() for label in y)
        assert sorted([*task.train.labels.tolist(), *task.test.labels.tolist()]) == labels
        pixels = {value for x, _ in users.values() for sample in x for value in sample}
        assert all(type(value) in (int, float) and 0 <= value <= 1 for value in pixels)


@many
@given(leaf=leaf_files(TEXT[:80], "e"))
def test_a_leaf_file_of_texts(tmp_path_factory, leaf):
    path = tmp_path_factory.getbasetemp() / "data" / "train" / "texts.json"
    for part in ("train", "test"):
        path.parents[1].joinpath(part).mkdir(parents=True, exist_ok=True)
        path.parents[1].joinpath(part, "texts.json").write_bytes(leaf.content)
    task = accepted("LEAF texts", lambda: Shakespeare(data=str(path.parents[1])).task(0))
    assert leaf.oddities or task is not None
    if task is not None:
        found = users_of(leaf.content)
        texts = [sample + label for x, y in found.values() for sample, label in zip(x, y, strict=True)]
        assert task.train.inputs.tolist() == [encode(text[:80]).tolist() for text in texts]
        assert task.train.labels.tolist() == [int(encode(text[80:])[0]) for text in texts]
