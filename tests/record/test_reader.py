"""Reading any file gives frames or one clear line."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.record import schema
from hpctrip.record.diff import diff
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import open_run, open_runs, read_traces
from hpctrip.record.show import summary
from hpctrip.record.verify import verify
from hpctrip.record.writer import image, write_run

SHARED_TRACES = Path(__file__).parents[2].parent / "shared/data/powerdata2019"


def test_a_run_is_tidy_frames_with_units(run_file):
    run = open_run(run_file)
    assert list(run.rounds["clock_s"]) == [21.0, 52.0, 93.0]
    assert run.rounds.attrs["units"]["clock_s"] == "s"
    assert "simulated" in run.rounds.attrs["descriptions"]["clock_s"]
    third = run.cohorts[run.cohorts["round"] == 3]
    assert list(third["site"]) == [3, 2, 1, 0]  # the policy's order is kept
    assert list(run.sites["domain"]) == [f"cella_pdu{i}" for i in range(5)]
    assert run.input["policy"]["kind"] == "powertrip" and "[policy]" in run.input_toml
    assert run.meta["hosts"] == ["node1", "node1", "node2"] and run.meta["synthetic_data"] is True
    assert run.time_to_accuracy_s == 52.0


def test_columns_are_read_without_an_object_of_h5py_each(run_file, monkeypatch):
    looked_up = []
    get = h5py.Group.__getitem__
    monkeypatch.setattr(
        h5py.Group, "__getitem__", lambda group, name: looked_up.append(name) or get(group, name)
    )
    open_run(run_file)
    assert not {"round", "clock_s", "site", "k"} & set(looked_up)


def test_files_folders_and_patterns_name_runs_once_each(run_file, tmp_path):
    deeper = tmp_path / "seed2" / "other.h5"
    deeper.parent.mkdir()
    deeper.write_bytes(run_file.read_bytes())
    (tmp_path / "other.h5.tmp").write_bytes(b"leftover")
    runs = open_runs([run_file, tmp_path, str(tmp_path / "*.h5")])
    assert [run.path for run in runs] == [run_file, deeper]


def test_one_report_names_every_file_that_cannot_be_read(run_file, tmp_path):
    (tmp_path / "text.h5").write_text("not HDF5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        open_runs([run_file, *(tmp_path / name for name in ("text.h5", "none*.h5", "empty", "nope.h5"))])
    report = str(caught.value).splitlines()
    assert len(report) == 4
    for line in report[:2]:
        assert "names no results file; a folder must hold files ending in" in line
    assert "nope.h5: no such file" in report[2]
    assert "text.h5: is not an HDF5 file" in report[3]


def test_no_pattern_at_all_is_reported():
    with pytest.raises(InputError, match="no file was named"):
        open_runs([])


def test_other_files_are_refused(run_file, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_run(tmp_path / "absent.h5")
    with pytest.raises(InputError, match="Is a directory"):
        open_run(tmp_path)
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["numbers"] = [1, 2, 3]
    with pytest.raises(InputError, match="is not an hpctrip results file"):
        open_run(tmp_path / "foreign.h5")


def test_the_flights_of_a_file_older_than_their_columns_start_with_their_rounds(
    monkeypatch, meta, fake_sites, fake_history, tmp_path
):
    path, specs = tmp_path / "old.h5", schema.TABLES["rounds_sites"]
    older = {name: spec for name, spec in specs.items() if name not in ("start_s", "age", "weight")}
    with monkeypatch.context() as patch:
        patch.setitem(schema.TABLES, "rounds_sites", older)
        write_run(path, meta, fake_sites(5), fake_history(3, 5))
    run = open_run(path)
    flights = run.flights.query("round == 3")
    assert flights["site"].tolist() == [0, 1, 2, 3] and set(flights["start_s"]) == {52.0}
    assert flights["computed_s"].tolist() == [62.0, 72.0, 82.0, 92.0]
    assert flights["sent_s"].tolist() == [63.0, 73.0, 83.0, 93.0] and set(flights["end_s"]) == {93.0}
    assert run.history().last.cohort.start_s.tolist() == [52.0] * 4 and verify(run) == []
    write_run(tmp_path / "new.h5", meta, fake_sites(5), fake_history(3, 5))
    assert diff(run, open_run(tmp_path / "new.h5")) == []


@pytest.mark.parametrize("version", [1, 99])
def test_a_file_of_another_format_version_is_one_line_that_names_its_writer(run_file, version):
    with h5py.File(run_file, "r+") as file:
        file.attrs["format_version"], file.attrs["hpctrip_version"] = version, np.bytes_("0.1.0")
    with pytest.raises(InputError) as refused:
        open_run(run_file)
    assert str(refused.value) == (
        f"{run_file}: has format version {version}, written by hpctrip 0.1.0; "
        f"this hpctrip reads version {schema.RUN.version}; use the hpctrip that wrote it"
    )


def test_a_file_that_another_program_holds_locked_is_read(run_file):
    """It is read as bytes, and replaced whole by those who write it."""
    with open(run_file, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert len(open_run(run_file).rounds) == 3


def test_a_file_older_than_a_column_is_read_with_its_default(
    monkeypatch, meta, fake_sites, fake_history, tmp_path
):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    write_run(new, meta, fake_sites(5), fake_history(3, 5))
    with monkeypatch.context() as patch:
        without_later = {
            name: spec for name, spec in schema.TABLES["rounds"].items() if name != "record_wall_s"
        }
        patch.setitem(schema.TABLES, "rounds", without_later)
        write_run(old, meta, fake_sites(5), fake_history(3, 5))
    run = open_run(old)
    assert run.rounds["record_wall_s"].tolist() == [0.0] * 3 and verify(run) == []
    assert len(run.history()) == 3 and diff(run, open_run(new)) == []
    assert summary(run)["not recorded"] == "rounds/record_wall_s: the file is older"
    with h5py.File(new, "r+") as file:
        del file["rounds/record_wall_s"]
    with pytest.raises(DamagedError, match="/rounds does not match its checksum"):
        open_run(new)


def test_a_file_older_than_an_attribute_is_read_with_its_default(
    monkeypatch, meta, fake_sites, fake_history, tmp_path
):
    old = tmp_path / "old.h5"
    with monkeypatch.context() as patch:
        without_later = {name: spec for name, spec in schema.ATTRIBUTES.items() if not spec.is_later}
        patch.setattr(schema, "RUN", schema.RUN._replace(attributes=without_later))
        write_run(old, meta | {"policy": "powertrip"}, fake_sites(5), fake_history(3, 5))
    run = open_run(old)
    assert verify(run) == [] and run.meta["policy"] == "powertrip" and "policy" not in run.added
    assert run.meta["compression"] == "none" and {"compression", "neutral_keys"} <= set(run.added)
    with h5py.File(old, "r+") as file:
        del file.attrs["policy"]
    with pytest.raises(DamagedError, match="attributes or input do not match their checksum"):
        open_run(old)


def test_rows_with_a_missing_column_or_an_unknown_site_are_refused(run_file):
    for site in (-1, 5):
        run = open_run(run_file)
        run.cohorts.loc[len(run.cohorts) - 1, "site"] = site
        with pytest.raises(InputError, match=f"round 3: its cohort has site {site}; sites are 0 to 4"):
            run.history()
    del run.rounds["efficiency"]
    with pytest.raises(InputError, match="/rounds/efficiency: is missing"):
        run.history()


def test_a_file_cut_anywhere_is_one_clear_line(run_file):
    whole = run_file.read_bytes()
    for length in np.random.default_rng(0).integers(0, len(whole), 25):
        run_file.write_bytes(whole[:length])
        with pytest.raises(InputError) as caught:
            open_run(run_file)
        assert str(run_file) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("num_rounds", "num_changes"), [(3, 40), (600, 8)])
def test_a_changed_byte_is_noticed_or_without_effect(
    num_rounds, num_changes, meta, fake_sites, fake_history, tmp_path
):
    whole, path = image(meta, fake_sites(5), fake_history(num_rounds, 2)), tmp_path / "run.h5"
    rng, noticed = np.random.default_rng(1), 0
    path.write_bytes(whole)
    sound = open_run(path)
    for offset in rng.integers(0, len(whole), num_changes):
        changed = bytearray(whole)
        changed[offset] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            run = open_run(path)
        except InputError:
            noticed += 1
            continue
        if verify(run):
            noticed += 1
        else:
            assert run.meta == sound.meta
            for name, frame in run.tables.items():
                assert frame.equals(sound.tables[name])
    assert noticed > 0


@pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="shared/data/powerdata2019 is not here")
def test_real_traces_come_as_one_long_frame():
    frame = read_traces(SHARED_TRACES / "cella_pdu6.csv.gz", column="measured")
    assert list(frame) == ["time_s", "cell", "domain", "utilisation"]
    assert len(frame) == 8928 and frame["time_s"].iloc[1] == 300.0
    assert set(frame["domain"]) == {"cella_pdu6"} and not frame.attrs["synthetic"]


def test_traces_that_do_not_exist_are_reported(tmp_path):
    with pytest.raises(InputError, match=os.path.basename(tmp_path)):
        read_traces(tmp_path)
