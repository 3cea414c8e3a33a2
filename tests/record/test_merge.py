"""`merge` gathers the runs of a sweep in one table; its CSV files hold no text that another program evaluates."""

from __future__ import annotations

import io
import json
import os

import h5py
import numpy as np
import pandas as pd
import pytest

from hpctrip.base.errors import InputError
from hpctrip.record.formats import csv_bytes
from hpctrip.record.merge import write_merged
from hpctrip.record.reader import open_runs
from hpctrip.record.writer import write_run


@pytest.fixture
def sweep(fake_history, fake_sites, meta, tmp_path):
    """Four runs: k = 10 and 20, seeds 0 and 1, the last one killed after a round."""
    for number, (seed, k) in enumerate([(1, 20), (0, 20), (1, 10), (0, 10)]):
        settings = {
            "seed": seed,
            "policy": {"kind": "static", "k": k},
            "checkpoint": {"every_s": 10.0 * number},
        }
        killed = {"status": "running", "stop_reason": ""} if number == 3 else {}
        rounds = fake_history(1 if number == 3 else 3, 5)
        more = {"seed": seed, "input_json": json.dumps(settings), "params_digest": f"{number:02}"}
        write_run(tmp_path / f"run{number}.h5", meta | more | killed, fake_sites(5), rounds)
    return tmp_path


def test_the_table_has_a_row_per_run_and_the_keys_that_vary(sweep):
    paths = write_merged(sweep / "all.h5", open_runs([sweep]))
    assert [path.name for path in paths] == ["all.h5", "all.csv"]
    table = pd.read_csv(sweep / "all.csv", dtype={"params_digest": str})
    assert table["input.policy.k"].tolist() == [10, 10, 20, 20] and table["seed"].tolist() == [0, 1, 0, 1]
    assert table["status"].tolist() == ["running", "finished", "finished", "finished"]
    assert table["num_rounds"].tolist() == [1, 3, 3, 3]
    assert table["time_to_accuracy_s"].fillna(-1).tolist() == [-1, 52, 52, 52]
    assert table["params_digest"].tolist() == ["03", "02", "01", "00"]
    assert "input.policy.kind" not in table and "input.checkpoint.every_s" not in table


def test_a_table_among_the_runs_is_no_run(sweep, hpctrip):
    """The table of a folder may lie in that folder."""
    for _ in range(2):
        assert hpctrip("merge", sweep / "all.h5", sweep).out.endswith("all.csv: 4 runs\n")
    for named in (sweep, str(sweep / "*.h5")):
        assert hpctrip("show", "--status", named).out.split() == ["finished"] * 3 + ["running"]
    assert hpctrip("merge", sweep / "other.h5", sweep).code == 0
    hpctrip("show", sweep / "all.h5").check_refused(["all.h5: is a table of runs, not a results file"])
    hpctrip("show", str(sweep / "[ao]*.h5")).check_refused(["names merged tables only, no results file"])


def test_the_hdf5_table_explains_itself_and_equals_the_csv(sweep):
    write_merged(sweep / "all.h5", open_runs([sweep]))
    csv = pd.read_csv(sweep / "all.csv")
    with h5py.File(sweep / "all.h5") as file:
        assert set(file["runs"]) == {"row", *csv}
        assert file["runs/time_to_accuracy_s"].attrs["unit"].decode() == "s"
        assert file["runs/clock_s"][()].tolist() == csv["clock_s"].tolist()


def test_a_file_name_that_is_not_utf8_is_escaped(sweep):
    path = os.fsdecode(bytes(sweep / "run") + b"\xff.h5")
    os.rename(sweep / "run0.h5", path)
    write_merged(sweep / "all.h5", open_runs([path]))
    with h5py.File(sweep / "all.h5") as file:
        recorded = file["runs/path"][0].decode()
    assert recorded == f"{sweep}/run\\udcff.h5" and recorded in (sweep / "all.csv").read_text()


def test_merging_again_ignores_the_old_table_and_replaces_it(sweep):
    for _ in range(2):
        write_merged(sweep / "all.h5", open_runs([sweep], besides=sweep / "all.h5"))
    assert len(pd.read_csv(sweep / "all.csv")) == 4


def test_an_unrelated_file_beside_the_table_is_never_overwritten(sweep):
    notes, runs = sweep / "notes.csv", open_runs([sweep])
    notes.write_text("my own, notes\n")
    with pytest.raises(InputError, match=r"notes\.csv: exists and is not part of a merged table"):
        write_merged(sweep / "notes.h5", runs)
    assert notes.read_text() == "my own, notes\n" and not (sweep / "notes.h5").exists()
    write_merged(sweep / "notes.h5", runs, overwrite=True)
    assert len(pd.read_csv(notes)) == 4


@pytest.mark.parametrize("content", ["a results file", b"text"])
def test_a_file_that_is_no_table_is_never_overwritten(content, sweep):
    content = (sweep / "run0.h5").read_bytes() if content == "a results file" else content
    (sweep / "mine.h5").write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.h5: exists and is not a merged table"):
        write_merged(sweep / "mine.h5", open_runs([sweep / "run1.h5"]))
    assert (sweep / "mine.h5").read_bytes() == content


@pytest.mark.parametrize("name", ["all.csv", "all", ""])
def test_a_table_is_named_like_a_results_file(name, sweep):
    with pytest.raises(InputError, match=r"does not end in \.h5 or \.hdf5"):
        write_merged(name and sweep / name, open_runs([sweep]))


def test_numbers_keep_their_digits_and_ordinary_texts_are_as_they_are(read_back):
    frame = pd.DataFrame(
        {"x": [0.1, np.nan], "n": [2**62, -1], "name": ["a b", 'c, "d"'], "yes": [True, False]}
    )
    written = read_back(io.BytesIO(csv_bytes(frame)), frame)
    pd.testing.assert_frame_equal(written, frame, check_exact=True)


def test_texts_are_neither_formulas_nor_lines():
    texts = ["=1+1", "@x", "-x", "+x", "-3", "+1e3", "", "a\rb\nc", "\x1b[31m"]
    csv = csv_bytes(pd.DataFrame({"=name": texts})).decode()
    assert csv.splitlines() == [
        "'=name", "'=1+1", "'@x", "'-x", "'+x", "-3", "+1e3", '""', "a\\rb\\nc", "\\x1b[31m",
    ]  # fmt: skip
