"""What a stranger's HDF5 file may be made of, and what it is refused for before any value is read."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zlib

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

from hpctrip.base.errors import InputError
from hpctrip.record import admission
from hpctrip.record.reader import open_run

SECRET = b"root:x:0:0 the secret of the machine"


def column(group, name="more", **how):
    dataset = group.create_dataset(name, **how)
    dataset.attrs.update(unit=np.bytes_(b"1"), description=np.bytes_(b"more"))
    return dataset


def virtual(group, source):
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource(source, "sites/distance_m", shape=(5,))
    group.create_virtual_dataset("more", layout)


def committed(group):
    group.file["type"] = np.dtype("f8")
    column(group, shape=(5,), dtype=group.file["type"])
    del group.file["type"]


def unknown_filter(group, code=305):
    """A column whose filter HDF5 would have to load."""
    how = h5p.create(h5p.DATASET_CREATE)
    how.set_chunk((5,))
    how.set_filter(code, h5z.FLAG_OPTIONAL)
    made = h5d.create(group.id, b"more", h5t.IEEE_F64LE, h5s.create_simple((5,)), dcpl=how)
    made.write_direct_chunk((0,), b"\0" * 40, 0)
    h5py.Dataset(made).attrs.update(unit=np.bytes_(b"1"), description=np.bytes_(b"more"))


def large_chunk(group):
    """Five numbers in a chunk that unpacks to 2 GB; written as it is packed, which takes no time."""
    size = (2**28,)
    made = column(group, shape=(5,), dtype="f8", maxshape=size, chunks=size, compression="gzip")
    made.id.write_direct_chunk((0,), zlib.compress(b"\0" * 40))


CRAFTED = {
    "a soft link": (lambda g: g.__setitem__("more", h5py.SoftLink("/sites/site")), "link to elsewhere"),
    "a link into another file": (
        lambda g: g.__setitem__("more", h5py.ExternalLink("other.h5", "/sites/site")),
        "link to elsewhere",
    ),
    "a second name": (lambda g: g.__setitem__("more", g["site"]), "is another name of what was there"),
    "a circle": (lambda g: g.__setitem__("more", g.parent), "is no column in a group"),
    "storage in another file": (
        lambda g: column(g, shape=(5,), dtype="S7", external=[("secret", 0, 35)]),
        "stored outside the file",
    ),
    "a virtual column": (lambda g: virtual(g, "other.h5"), "stored outside the file, or virtual"),
    "an unknown filter": (unknown_filter, "packed with another filter"),
    "a filter of others": (lambda g: column(g, data=np.ones(5), compression="lzf"), "another filter"),
    "a committed type": (committed, "has a type that is stored elsewhere"),
    "references": (lambda g: column(g, shape=(5,), dtype=h5py.ref_dtype), "neither number nor text"),
    "texts of any length": (lambda g: column(g, data=["x"] * 5), "variable length"),
    "lists of any length": (lambda g: column(g, shape=(5,), dtype=h5py.vlen_dtype("i4")), "neither number"),
    "records": (lambda g: column(g, data=np.zeros(5, "i4,f8")), "neither number nor text"),
    "an enumeration": (
        lambda g: column(g, data=np.zeros(5, "i4"), dtype=h5py.enum_dtype({"a": 0})),
        "neither number nor text",
    ),
    "bytes of no type": (lambda g: column(g, data=np.zeros(5, "V8")), "neither number nor text"),
    "two dimensions": (lambda g: column(g, data=np.zeros((5, 1))), "has 2 dimensions"),
    "a single number": (lambda g: column(g, data=1.0), "is a single number"),
    "nothing": (lambda g: column(g, data=h5py.Empty("f8")), "holds nothing"),
    "a text type of 2 GB": (lambda g: column(g, shape=(5,), dtype=f"S{2**31 - 1}"), "impossible shape"),
    "a chunk of 2 GB": (
        large_chunk,
        "has 5 rows in chunks of 268,435,456",
    ),
    "a group within a group": (lambda g: g.create_group("more"), "is no column in a group"),
    "a column beside the groups": (lambda g: column(g.parent, data=np.ones(5)), "is no column in a group"),
    "a name for the terminal": (lambda g: g.create_group("\x1b[31m"), r"x1b\[31m is no name of 1 to 200"),
    "a text attribute of any length": (lambda g: g.attrs.__setitem__("x", "text"), "variable length"),
    "an attribute that is a table": (lambda g: g.attrs.__setitem__("x", np.zeros(3)), "array of numbers"),
    "an attribute that refers": (lambda g: g.attrs.__setitem__("x", g.ref), "neither number nor text"),
    "an empty attribute": (lambda g: g.attrs.__setitem__("x", h5py.Empty("f8")), "holds nothing"),
}


@pytest.mark.parametrize("what", CRAFTED)
def test_what_hpctrip_does_not_write_is_refused_in_one_line(what, run_file, tmp_path):
    change, problem = CRAFTED[what]
    shutil.copy(run_file, tmp_path / "other.h5")
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(run_file, "r+") as file:
        change(file["sites"])
    with pytest.raises(InputError, match=problem) as caught:
        open_run(run_file)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{run_file}: ")


@pytest.mark.parametrize("kind", ["external", "link", "virtual"])
def test_another_file_is_not_even_opened(kind, run_file, tmp_path):
    """A pipe that nobody writes to would be waited for without end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with h5py.File(run_file, "r+") as file:
        if kind == "external":
            column(file["sites"], shape=(5,), dtype="S7", external=[(str(pipe), 0, 35)])
        elif kind == "link":
            file["sites/more"] = h5py.ExternalLink(str(pipe), "/sites")
        else:
            virtual(file["sites"], str(pipe))
    with pytest.raises(InputError, match=r"elsewhere|outside the file"):
        open_run(run_file)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.h5")
    with pytest.raises(InputError, match="no regular file"):
        open_run(tmp_path / "run.h5")


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_file_never_makes_hdf5_load_a_library(run_file, tmp_path):
    """The user has a folder of plug-ins; opening is refused before HDF5 looks there, and even a file read without the
    check finds no folder to look in."""
    flag, folder = tmp_path / "loaded", tmp_path / "plugins"
    folder.mkdir()
    code = f'#include <stdio.h>\n__attribute__((constructor)) static void f(void) {{ fclose(fopen("{flag}", "w")); }}\n'
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / "lib.so"], input=code.encode(), check=True
    )
    with h5py.File(run_file, "r+") as file:
        unknown_filter(file["sites"])
    careless = "import h5py\nh5py.File({path!r})['sites/more'][()]\n"
    careful = "from hpctrip.record.reader import open_run\nopen_run({path!r})\n"
    unchecked = (
        "from hpctrip.record import admission\nadmission._Walk.group = lambda *_: None\n"
        "with admission.admitted({path!r}, 'hpctrip run') as file:\n    file['sites/more'][()]\n"
    )
    loaded = {}
    for name, script in {"careful": careful, "unchecked": unchecked, "careless": careless}.items():
        ended = subprocess.run(
            [sys.executable, "-c", script.format(path=str(run_file))],
            env=os.environ | {"HDF5_PLUGIN_PATH": str(folder)},
            capture_output=True,
        )
        assert ended.returncode == 1
        loaded[name] = flag.exists()
    assert loaded == {"careful": False, "unchecked": False, "careless": True}


def test_the_folders_of_plugins_are_the_same_afterwards(run_file):
    from h5py import h5pl

    before = [h5pl.get(index) for index in range(h5pl.size())]
    open_run(run_file)
    assert before and [h5pl.get(index) for index in range(h5pl.size())] == before


def test_columns_that_share_their_storage_are_refused(run_file, tmp_path):
    """Three columns of a megabyte in a file of one: their addresses are those of the first."""
    plain, values = tmp_path / "plain.h5", np.random.default_rng(0).uniform(size=130_000)
    with h5py.File(run_file) as old, h5py.File(plain, "w", libver="earliest") as new:  # has no checksums
        for name in old:
            old.copy(name, new)
        for name, value in old.attrs.items():
            new.attrs.create(name, value, dtype=old.attrs.get_id(name).dtype)
        for name in "abc":
            column(new["sites"], name, shape=values.shape, dtype="f8")
    with h5py.File(plain, "r+") as new:  # behind everything else
        for name in "abc":
            new["sites"][name][:] = values
        offsets = [new["sites"][name].id.get_offset() for name in "abc"]
    data = plain.read_bytes()
    first, end = min(offsets), min(offsets) + values.nbytes
    assert end < len(data) - 1.5 * values.nbytes
    for offset in offsets:
        assert data.count(struct.pack("<Q", offset)) == 1
        data = data.replace(struct.pack("<Q", offset), struct.pack("<Q", first))
    data = data.replace(struct.pack("<Q", len(data)), struct.pack("<Q", end))
    plain.write_bytes(data[:end])
    with pytest.raises(InputError, match="lies where other columns lie"):
        open_run(plain)


@pytest.mark.parametrize(
    ("bound", "problem"),
    [
        ("MAX_OBJECTS", "is one object too many; at most 9"),
        ("MAX_ATTRIBUTES", "attributes; at most 9 are read"),
        ("MAX_ATTRIBUTE_BYTES", "all attributes hold at most 9 bytes"),
        ("MAX_CHUNKS", "in chunks of"),
        ("MAX_CHUNK_BYTES", "in chunks of"),
    ],
)
def test_the_bounds_hold(bound, problem, run_file, monkeypatch):
    with h5py.File(run_file, "r+") as file:
        column(file["sites"], data=np.ones(5), chunks=(2,), compression="gzip")
    monkeypatch.setattr(admission, bound, 1 if "CHUNK" in bound else 9)
    with pytest.raises(InputError, match=problem):
        open_run(run_file)


def test_a_larger_file_or_larger_values_are_refused(run_file, monkeypatch):
    size = run_file.stat().st_size
    monkeypatch.setattr(admission, "MAX_BYTES", size - 1)
    with pytest.raises(InputError, match=f"at most {size - 1:,} are read"):
        open_run(run_file)
    with h5py.File(run_file, "r+") as file:
        column(file["sites"], data=np.zeros(50_000), compression="gzip")
    monkeypatch.setattr(admission, "MAX_BYTES", 300_000)
    with pytest.raises(InputError, match="impossible shape"):
        open_run(run_file)


def test_numbers_of_other_machines_are_read(run_file):
    with h5py.File(run_file, "r+") as file:
        for name, dtype in (("big", ">f8"), ("half", "f2"), ("small", "u1"), ("truth", "?")):
            column(file["sites"], name, data=np.ones(5, dtype))
    run = open_run(run_file)
    assert all((run.sites[name] == 1).all() for name in ("big", "half", "small", "truth"))
