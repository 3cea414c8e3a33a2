"""A file that leads elsewhere or asks for code is refused before any value is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5pl, h5s, h5t, h5z

from hpctrip.base.errors import InputError
from hpctrip.record.open_checked import DamagedError, open_checked
from hpctrip.record.reader import open_run


@pytest.fixture(autouse=True, params=["in memory", "on disk"])
def where(request, monkeypatch):
    """A large file stays on the disk."""
    if request.param == "on disk":
        monkeypatch.setattr("hpctrip.record.open_checked.MOST_IN_MEMORY", 0)


def virtual(group, source):
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource(source, "sites/distance_m", shape=(5,))
    group.create_virtual_dataset("more", layout)


def unknown_filter(group, code=305):
    """A column whose filter HDF5 would have to load."""
    how = h5p.create(h5p.DATASET_CREATE)
    how.set_chunk((5,))
    how.set_filter(code, h5z.FLAG_OPTIONAL)
    made = h5d.create(group.id, b"more", h5t.IEEE_F64LE, h5s.create_simple((5,)), dcpl=how)
    made.write_direct_chunk((0,), b"\0" * 40, 0)


def external_storage(group, source):
    group.create_dataset("more", shape=(5,), dtype="S7", external=[(source, 0, 35)])


ELSEWHERE = {
    "a soft link": (lambda g, _: g.__setitem__("more", h5py.SoftLink("/sites/site")), "is not a column in"),
    "an external link": (
        lambda g, source: g.__setitem__("more", h5py.ExternalLink(source, "/sites/site")),
        "is not a column in the file",
    ),
    "an external link in place of a group": (
        lambda g, source: g.file.__setitem__("more", h5py.ExternalLink(source, "/sites")),
        "is not a group in the file",
    ),
    "external storage": (external_storage, "is stored outside the file"),
    "a virtual column": (virtual, "is stored outside the file, or virtual"),
    "an unknown filter": (lambda g, _: unknown_filter(g), "is packed with another filter"),
    "a filter of others": (
        lambda g, _: g.create_dataset("more", data=np.ones(5), compression="lzf"),
        "is packed with another filter",
    ),
    "a group within a group": (lambda g, _: g.create_group("more").create_group("x"), "is not a column in"),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_foreign_parts_are_refused_without_opening_another_file(what, run_file, tmp_path):
    """The other file is a pipe, which would be waited for without end."""
    change, problem = ELSEWHERE[what]
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(run_file, "r+") as file:
        change(file["sites"], str(tmp_path / "pipe"))
    with pytest.raises(InputError, match=problem) as caught:
        open_run(run_file)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{run_file}: ")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.h5")
    with pytest.raises(InputError, match="not a regular file"):
        open_run(tmp_path / "run.h5")


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_file_never_makes_hdf5_load_a_library(run_file, tmp_path):
    """The user has a folder of plug-ins; the file is refused before HDF5 looks there."""
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
    loaded = {}
    for name, script in {"careful": careful, "careless": careless}.items():
        ended = subprocess.run(
            [sys.executable, "-c", script.format(path=str(run_file))],
            env=os.environ | {"HDF5_PLUGIN_PATH": str(folder)},
            capture_output=True,
        )
        assert ended.returncode == 1
        loaded[name] = flag.exists()
    assert loaded == {"careful": False, "careless": True}


def test_a_fault_of_the_reader_is_no_damage(run_file, hpctrip, monkeypatch):
    def has_a_mistake(*_):
        return None.path

    monkeypatch.setattr("hpctrip.record.reader.common_fields", has_a_mistake)
    ended = hpctrip("show", run_file)
    assert ended.code == 70 and "AttributeError" in ended.err and "damaged" not in ended.err


def test_hdf5_has_no_plugin_folders_while_a_file_is_read(run_file):
    def folders():
        return [h5pl.get(index) for index in range(h5pl.size())]

    before = folders()
    with open_checked(run_file, "hpctrip run"):
        assert folders() == []
    assert before and folders() == before


def test_an_exception_while_the_file_is_used_is_damage(run_file):
    with pytest.raises(DamagedError, match="is damaged"), open_checked(run_file, "hpctrip run") as file:
        file["sites/no_such_column"]


def test_an_empty_file_is_damaged_and_another_is_no_results_file(tmp_path):
    (tmp_path / "empty.h5").write_bytes(b"")
    with pytest.raises(DamagedError, match="is not an HDF5 file"):
        open_run(tmp_path / "empty.h5")
    (tmp_path / "text.h5").write_text("the log of hpctrip run\n")
    with pytest.raises(InputError, match="is not an HDF5 file") as refused:
        open_run(tmp_path / "text.h5")
    assert not isinstance(refused.value, DamagedError)
