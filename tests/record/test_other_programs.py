"""Other programs read a results file as it is, and hpctrip reads files of before."""

from __future__ import annotations

import json
import shutil
import subprocess

import h5py
import numpy as np
import pytest

from hpctrip.record import schema
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.sim.rounds import History

UDUNITS = {"1", "s", "m", "J", "W", "g", "bit/s", "1/s", "1/J"}


def attributes(file):
    """The low-level type and shape of every attribute: {place: (type, shape)}."""
    items = [file]
    file.visititems(lambda _, item: items.append(item))
    for item in items:
        for name in item.attrs:
            attribute = h5py.h5a.open(item.id, name.encode())
            yield f"{item.name}@{name}", attribute.get_type(), attribute.shape


def test_no_attribute_is_of_a_kind_that_other_programs_drop(written):
    run = written(knobs=[], synthetic_signals=["carbon"], command="é")
    with h5py.File(run.path) as file:
        for place, kind, shape in attributes(file):
            assert not isinstance(kind, h5py.h5t.TypeEnumID) and 0 not in shape, place
            if isinstance(kind, h5py.h5t.TypeStringID):
                assert (kind.get_cset() == h5py.h5t.CSET_UTF8) == (place == "/@command"), place
        assert file.attrs["synthetic_data"].dtype == np.int8
        assert file["input/json"].id.get_type().get_cset() == h5py.h5t.CSET_ASCII
    assert run.meta["knobs"] == [] and run.meta["synthetic_data"] is True and run.meta["git_dirty"] is False
    assert run.meta["synthetic_signals"] == ["carbon"] and run.meta["command"] == "é"


@pytest.mark.parametrize("history", [None, History()], ids=["three rounds", "no round"])
def test_every_column_has_a_dimension_and_the_attributes_of_cf(history, written):
    run = written(history)
    with h5py.File(run.path) as file:
        for table, index in {
            "sites": "site",
            "rounds": "round",
            "candidates": "row",
            "rounds_sites": "row",
        }.items():
            assert file[table][index].is_scale and len(file[table][index]) == len(run.tables[table])
            for name, column in file[table].items():
                assert name == index or column.dims[0][0] == file[table][index]
                assert column.attrs["long_name"] == column.attrs["description"]
                assert column.dtype.kind == "S" or column.attrs["units"].decode() in UDUNITS
    assert "row" not in run.cohorts and next(iter(run.candidates)) == "round"


def test_a_file_of_before_is_equal_to_its_successor(run_file, tmp_path):
    """It has booleans, empty attributes and UTF-8 texts, and no numbers of rows."""
    before = tmp_path / "before.h5"
    shutil.copy(run_file, before)
    with h5py.File(before, "r+") as file:
        for table in ("rounds_sites", "candidates"):
            del file[table]["row"]
            columns = {
                name: schema.Column(
                    column[()], column.attrs["unit"].decode(), column.attrs["description"].decode()
                )
                for name, column in file[table].items()
            }
            file[table].attrs["checksum"] = np.bytes_(schema.table_checksum(columns.items()))
        stored = {name: file.attrs[name] for name in schema.ATTRIBUTES}
        for name, attribute in schema.ATTRIBUTES.items():
            if isinstance(attribute.default, bool):
                stored[name] = file.attrs[name] = np.bool_(stored[name])
            elif isinstance(attribute.default, list):
                texts = [text for text in np.atleast_1d(stored[name]) if text]
                stored[name] = file.attrs[name] = np.array(texts, h5py.string_dtype("utf-8", 99))
        meta = {
            name: [text.decode() for text in value]
            if isinstance(value, np.ndarray)
            else value.decode()
            if isinstance(value, bytes)
            else value.item()
            for name, value in stored.items()
        }
        toml, resolved = file["input/toml"][()].decode(), json.loads(file["input/json"][()])
        file.attrs["checksum"] = np.bytes_(schema.meta_checksum(meta, toml, resolved))
        assert file.attrs["git_dirty"].dtype == bool and file.attrs["knobs"].shape == (0,)
    old, new = open_run(before), open_run(run_file)
    assert old.meta == new.meta and diff(old, new) == [] and verify(old) == []


def test_xarray_reads_every_table_and_the_tree(run_file):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    tree = xarray.open_datatree(run_file, engine="h5netcdf")
    assert tree.attrs["synthetic_data"] == 1 and len(tree["rounds"]["clock_s"]) == 3
    cohorts = xarray.open_dataset(run_file, engine="h5netcdf", group="rounds_sites")
    assert dict(cohorts.sizes) == {"row": 9} and cohorts["compute_s"].attrs["units"] == "s"


def test_netcdf4_reads_every_attribute(run_file):
    with pytest.importorskip("netCDF4").Dataset(run_file) as file:
        assert {"git_dirty", "knobs", "status"} <= set(file.ncattrs())
        assert file["candidates"]["k"].dimensions == ("row",)


def test_h5dump_reads_every_attribute(run_file):
    if shutil.which("h5dump") is None:
        pytest.skip("no h5dump here")
    done = subprocess.run(["h5dump", "-A", run_file], capture_output=True, text=True)
    assert done.returncode == 0 and "synthetic_power" in done.stdout, done.stderr
