"""Reading and generating power traces."""

import gzip
import random
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from hpctrip.base.errors import InputError
from hpctrip.sim.traces.files import read_trace_files
from hpctrip.sim.traces.synthetic import CELLS, synthetic_table, synthetic_traces

REPOSITORY = Path(__file__).parents[2]
GOOGLE = REPOSITORY.parent / "shared/data/powerdata2019"
HEADER = (
    "time,cell,pdu,measured_power_util,production_power_util,bad_measurement_data,bad_production_power_data"
)
google = pytest.mark.skipif(not GOOGLE.is_dir(), reason=f"no Google power traces in {GOOGLE}")


def rows(*production, start=600, step=300, cell="a", pdu="pdu6"):
    """Official lines with these production utilisations; measured is 0.1 more."""
    return [
        f"{(start + step * i) * 1_000_000},{cell},{pdu},{value + 0.1},{value},false,false"
        for i, value in enumerate(production)
    ]


def write(path, lines, header=HEADER):
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def fault(path, **options):
    """The one text that reading `path` ends with."""
    with pytest.raises(InputError) as error:
        read_trace_files(path, **options)
    return str(error.value)


def test_official_rows_in_any_order_gzipped_or_not_become_one_sorted_table(tmp_path):
    lines = rows(0.5, 0.6, 0.7, 0.6, pdu="pdu10")
    random.Random(1).shuffle(lines)
    (tmp_path / "cella_pdu10.csv.gz").write_bytes(gzip.compress("\n".join([HEADER, *lines]).encode()))
    write(tmp_path / "cella_pdu9.csv", rows(0.1, 0.2, 0.3, 0.4, pdu="pdu9"))
    (tmp_path / "machine_to_pdu_mapping.csv.gz").write_bytes(b"Google's other file in the same bucket")
    traces = read_trace_files(tmp_path)
    assert traces.names == ["cella_pdu9", "cella_pdu10"]
    assert traces.value.tolist() == [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.6]]
    assert (traces.cells, traces.step_s, traces.time_us[0]) == (["a", "a"], 300.0, 600_000_000)
    assert not traces.synthetic


def test_the_measured_column_is_read_when_asked_for(tmp_path):
    file = write(tmp_path / "cella_pdu6.csv", rows(0.25, 0.5))
    assert read_trace_files(file, column="measured").value.tolist() == [[0.35, 0.6]]
    write(file, ["600000000,a,pdu6,0.6", "900000000,a,pdu6,0.7"], "time,cell,pdu,measured_power_util")
    assert 'set column = "measured"' in fault(file)
    assert read_trace_files(file, column="measured").value.tolist() == [[0.6, 0.7]]


def test_bad_missing_and_absent_samples_hold_the_previous_good_value_and_are_counted(tmp_path, caplog):
    lines = rows(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    lines[0] = "600000000,a,pdu6,0.9,0.1,false,true"  # bad from the start: the first good value
    lines[2] = "1200000000,a,pdu6,0.9,,false,false"  # missing
    lines[3] = "1500000000,a,pdu6,0.9,7,false,true"  # bad: may be anything
    del lines[4]  # absent
    traces = read_trace_files(write(tmp_path / "cella_pdu6.csv", lines))
    assert traces.value.tolist() == [[0.2, 0.2, 0.2, 0.2, 0.2, 0.6]]
    assert "cella_pdu6.csv: 4 of 6 values are missing, and the one before holds" in caplog.text
    of_measured = [rows(0.1, 0.2)[0], rows(0.1, 0.2)[1].replace("false,false", "true,false")]
    file = write(tmp_path / "cella_pdu7.csv", of_measured)
    assert read_trace_files(file).value.tolist() == [[0.1, 0.2]]
    assert read_trace_files(file, column="measured").value.tolist() == [[0.2, 0.2]]


def test_a_domain_flagged_bad_by_more_than_half_is_refused_with_the_other_meaning_as_the_hint(tmp_path):
    lines = rows(0.1, 0.2, 0.3, 0.4)
    half = [line.replace("false,false", "false,true") for line in lines[:2]]
    file = write(tmp_path / "cella_pdu6.csv", [*half, *lines[2:]])
    assert read_trace_files(file).value.tolist() == [[0.3, 0.3, 0.3, 0.4]]
    most = [line.replace("false,false", "true,true") for line in lines[:3]]
    write(file, [*most, lines[3]])
    for column in ("production", "measured"):
        assert fault(file, column=column) == (
            f"{file}: 3 of 4 samples of cella_pdu6 are flagged bad (true-is-bad); if its flags are the other way "
            'round, set flags = "true-is-good"; else leave the domain out'
        )
    traces = read_trace_files(file, flags="true-is-good")
    assert traces.value.tolist() == [[0.1, 0.2, 0.3, 0.3]]
    lines[0] = lines[0].replace("false,false", "false,true")
    assert "3 of 4 samples of cella_pdu6 are flagged bad (true-is-good)" in fault(
        write(file, lines), flags="true-is-good"
    )


def test_repeated_rows_are_one_row_unless_they_disagree(tmp_path):
    lines = rows(0.1, 0.2, 0.3)
    file = write(tmp_path / "cella_pdu6.csv", [*lines, lines[1]])
    assert read_trace_files(file).value.tolist() == [[0.1, 0.2, 0.3]]
    problem = "cella_pdu6.csv, line 5: holds 0.2 and 0.25 of cella_pdu6 at 900 s; keep one of them"
    assert problem in fault(write(file, [*lines, lines[1].replace("0.2,", "0.25,")]))


def test_domains_of_different_length_are_cut_to_the_time_that_all_have(tmp_path):
    write(tmp_path / "cella_pdu6.csv", rows(0.1, 0.2, 0.3, 0.4))
    write(tmp_path / "cella_pdu7.csv", rows(0.7, 0.8, 0.9, start=900, pdu="pdu7"))
    traces = read_trace_files(tmp_path)
    assert traces.value.tolist() == [[0.2, 0.3, 0.4], [0.7, 0.8, 0.9]]
    assert traces.time_us[0] == 900_000_000


def test_a_domain_without_a_good_sample_and_domains_that_share_no_time_are_refused(tmp_path):
    lines = [f"{line.split(',0.')[0]},0.9,,false,false" for line in rows(0.1, 0.2)]
    assert "holds no value of cella_pdu6; leave it out" in fault(write(tmp_path / "cella_pdu6.csv", lines))
    write(tmp_path / "cella_pdu6.csv", rows(0.1, 0.2))
    write(tmp_path / "cella_pdu7.csv", rows(0.1, 0.2, start=90_000, pdu="pdu7"))
    assert "no time in common" in fault(tmp_path)


def test_the_interval_is_inferred_and_longer_ones_hold_their_values(tmp_path):
    file = write(tmp_path / "cella_pdu6.csv", rows(0.1, 0.2, step=900))
    assert read_trace_files(file).step_s == 900.0
    write(tmp_path / "cella_pdu7.csv", rows(*(0.1 * i for i in range(6)), pdu="pdu7"))
    traces = read_trace_files(tmp_path)
    assert traces.step_s == 300.0 and traces.value[0].tolist() == [0.1] * 3 + [0.2] * 3


def test_a_gap_is_bridged_as_far_as_the_input_says(tmp_path):
    lines = [*rows(0.1, 0.2), *rows(0.3, 0.4, start=600 + 300 + 25_200)]
    file = write(tmp_path / "cella_pdu6.csv", lines)
    problem = (
        "has no value of cella_pdu6 for 7 h after 900 s; fill the gap, or raise longest_gap_s (now 21600)"
    )
    assert fault(file) == f"{file}: {problem}"
    assert read_trace_files(file, longest_gap_s=25_200).value[0, [1, 84, 85]].tolist() == [0.2, 0.2, 0.3]


@pytest.mark.parametrize(("per_second", "unit"), [(1000, "ms"), (1, "s")])
def test_times_in_another_unit_are_refused_or_read_in_it(tmp_path, per_second, unit):
    lines = [f"{(1_714_521_600 + 300 * i) * per_second},a,pdu6,0.9,0.{i},false,false" for i in range(5)]
    file = write(tmp_path / "cella_pdu6.csv", lines)
    assert fault(file) == (
        f"{file}: column time has a median interval of {per_second * 3e-4:g} s; a series has 1 s to 1 "
        f'day; set time_unit = "{unit}"'
    )
    traces = read_trace_files(file, time_unit=unit)
    assert traces.step_s == 300 and traces.is_dated and traces.time_us[0] == 1_714_521_600_000_000
    assert "column time has a median interval of 3e+08 s" in fault(
        write(file, rows(0.1, 0.2, 0.3)), time_unit="s"
    )


def test_local_times_are_of_a_zone_and_clocks_that_show_an_hour_twice_are_a_hint(tmp_path):
    times = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]
    lines = [f"2025-10-26 {time},a,{pdu},0.{i}" for pdu in ("p1", "p2") for i, time in enumerate(times)]
    file = write(tmp_path / "cella.csv", lines, "datetime,cell,pdu,production_power_util")
    traces = read_trace_files(file, timezone="Europe/Brussels")
    assert traces.value.tolist() == [[0, 0.1, 0.2, 0.3, 0.4, 0.5]] * 2 and traces.step_s == 1800
    problem = "0.1 and 0.3 of cella_p1 at 2025-10-26T02:00:00 UTC; keep one of them; where clocks that were set back"
    assert problem in fault(file)


@pytest.mark.parametrize(
    "form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00:00", "%Y-%m-%dT%H:%M:%S.0000000+0000"]
)
def test_times_with_offsets_are_read(tmp_path, form):
    times = pd.date_range("2024-05-01", periods=3, freq="5min")
    lines = [f"{time.strftime(form)},a,pdu1,0.{i}" for i, time in enumerate(times)]
    traces = read_trace_files(write(tmp_path / "x.csv", lines, "datetime,cell,pdu,production_power_util"))
    assert traces.is_dated and traces.time_us[0] == times[0].value // 1000
    assert traces.value.tolist() == [[0, 0.1, 0.2]]


def test_rows_off_the_grid_are_refused(tmp_path):
    lines = [*rows(0.1, 0.2, 0.3), "1260000000,a,pdu6,0.9,0.4,false,false"]
    assert "line 5: the time of cella_pdu6 is not a whole number of 300 s steps after the first" in fault(
        write(tmp_path / "cella_pdu6.csv", lines)
    )
    write(tmp_path / "cella_pdu6.csv", rows(0.1, 0.2))
    write(tmp_path / "cella_pdu7.csv", rows(0.1, 0.2, start=660, pdu="pdu7"))
    assert "the time of cella_pdu6 is not a whole number of 300 s steps after the first" in fault(tmp_path)


def test_several_domains_and_calendar_times_fit_in_one_file(tmp_path):
    lines = [
        "1970-01-01 00:15:00,pdu6,a,0.6",
        "1970-01-01 00:00:00,pdu6,a,0.5",
        "1970-01-01 00:00:00,pdu7,a,0.7",
        "1970-01-01 00:15:00,pdu7,a,0.8",
    ]
    file = write(tmp_path / "both.csv", lines, "datetime,pdu,cell,production_power_util")
    traces = read_trace_files(file)
    assert (traces.step_s, traces.value.tolist()) == (900.0, [[0.5, 0.6], [0.7, 0.8]])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "1200000000,a,pdu6,0.9,1.3,false,false",
            "production_power_util = '1.3' is outside 0 to 1; give a fraction",
        ),
        ("1200000000,a,pdu6,0.9,0.5,false,maybe", "bad_production_power_data = 'maybe' is neither"),
        ("1200000000,,pdu6,0.9,0.5,false,false", "cell = '' is missing"),
        ("1e17,a,pdu6,0.9,0.5,false,false", "time = '1e17' is not a time in us"),
    ],
)
def test_a_wrong_value_is_reported_with_file_line_and_value(tmp_path, line, problem):
    file = write(tmp_path / "cella_pdu6.csv", [*rows(0.1, 0.2), line])
    assert f"{file}, line 4: {problem}" in fault(file)
    write(file, [*rows(0.1, 0.2, 0.3), "9e15,a,pdu6,0.9,0.5,false,false"])
    assert "has no value of cella_pdu6 for 2.5e+06 h after 1200 s" in fault(file)


def test_files_that_are_no_traces_say_what_is_wrong_with_them(tmp_path):
    file = tmp_path / "cella_pdu6.csv.gz"
    for content, problem in {
        HEADER.encode(): "no rows",
        "\n".join([HEADER, *rows(0.5)]).encode(): "holds 1 values of cella_pdu6; give two or more",
    }.items():
        file.write_bytes(content)
        assert problem in fault(file)
    assert "no such file" in fault(tmp_path / "absent.csv")
    (tmp_path / "empty").mkdir()
    assert "no cell*.csv" in fault(tmp_path / "empty", column="measured")
    assert "no file matches" in fault(str(tmp_path / "cellb*"))


@pytest.fixture(scope="module")
def months():
    return {column: synthetic_traces(seed=1, column=column) for column in ("measured", "production")}


def test_a_synthetic_month_has_googles_57_domains_in_10_cells(months):
    traces = months["production"]
    assert traces.value.shape == (57, 8928)
    assert [traces.cells.count(cell) for cell in "abcdefghij"] == [5, 5, 6, 6, 6, 10, 5, 12, 1, 1]
    assert {f"cell{cell}_{pdu}" for cell, (pdus, _) in CELLS.items() for pdu in pdus} == set(traces.names)
    assert traces.synthetic


def test_synthetic_cell_means_spread_over_49_to_74_percent(months):
    traces = months["production"]
    means = pd.Series(traces.value.mean(axis=1)).groupby(traces.cells).mean()
    assert 0.49 <= means.min() < 0.52 and 0.71 < means.max() <= 0.74


def test_synthetic_power_moves_as_googles_does(months):
    """The real numbers: traces/SOURCES.md. Bounds: about a fifth around them, the spread of the real domains."""
    util = months["measured"].value
    steps = np.diff(util)
    lag1 = [np.corrcoef(step[1:], step[:-1])[0, 1] for step in steps]
    between = np.corrcoef(steps)[np.triu_indices(57, 1)]
    hour = np.quantile(np.abs(util[:, 12:] - util[:, :-12]), 0.999)
    day = util[:55].mean(axis=0).reshape(31, 24, 12).mean(axis=(0, 2))
    assert np.mean(lag1) == pytest.approx(0.46, abs=0.06)
    assert between.mean() == pytest.approx(0.11, abs=0.03)
    assert util.std(axis=1).mean() == pytest.approx(0.022, abs=0.004)
    assert hour == pytest.approx(0.0735, abs=0.015)
    assert util[:55].mean() == pytest.approx(0.691, abs=0.02)
    assert np.ptp(day) == pytest.approx(0.042, abs=0.01)
    assert 8 <= day.argmax() <= 12
    assert months["production"].value.std(axis=1).mean() == pytest.approx(0.0074, abs=0.002)
    assert (months["production"].value < util).all()


def test_a_synthetic_month_is_made_once_for_all_runs_of_a_process_and_nobody_may_change_it():
    month = synthetic_traces(2019, "measured")
    assert synthetic_traces(2019, "measured") is month
    with pytest.raises(ValueError, match="read-only"):
        month.value[0, 0] = 0.0


def test_a_synthetic_month_depends_on_its_seed_alone():
    assert synthetic_table(3, 0.1).equals(
        synthetic_table(3, 1).groupby("pdu", sort=False).head(29).reset_index(drop=True)
    )
    assert not synthetic_table(3, 0.1).equals(synthetic_table(4, 0.1))


def run(script, *arguments):
    """A script of traces/, in this process."""
    command = runpy.run_path(str(REPOSITORY / "traces" / script))["main"]
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_generated_files_in_the_official_layout_read_back_as_generated(tmp_path):
    assert run("generate.py", tmp_path, "--days", "0.25", "--seed", "5").exit_code == 0
    assert len(list(tmp_path.glob("cell*_synthetic.csv.gz"))) == 57
    assert list(pd.read_csv(tmp_path / "cellj_mvpp2_synthetic.csv.gz", comment="#").columns) == HEADER.split(
        ","
    )
    traces, month = read_trace_files(tmp_path), synthetic_traces(5)
    assert traces.names == month.names and traces.synthetic
    assert np.array_equal(traces.value, month.value[:, :72])


def test_the_importer_prints_what_is_there_and_packs_it_into_one_file(tmp_path):
    write(tmp_path / "cella_pdu6.csv", [*rows(0.1, 0.2), *rows(0.4, start=1500)])
    write(tmp_path / "cellb_pdu7.csv", rows(0.5, 0.6, 0.7, 0.8, cell="b", pdu="pdu7"))
    packed = tmp_path / "packed.csv.gz"
    result = run("import_powerdata2019.py", tmp_path, "--out", packed)
    assert result.exit_code == 0, result.output
    assert "production utilisation: 2 domains, 4 steps of 300 s" in result.stdout
    assert "cella_pdu6    a 0.225 0.100 0.400" in result.stdout
    again = read_trace_files(packed)
    assert again.value.tolist() == [[0.1, 0.2, 0.2, 0.4], [0.5, 0.6, 0.7, 0.8]]
    assert not again.synthetic


def test_the_importer_names_the_unit_of_times_and_reads_it(tmp_path):
    lines = [line.replace("000000,a", ",a") for line in rows(0.1, 0.2, 0.3)]
    file = write(tmp_path / "cella_pdu6.csv", lines)
    refused = run("import_powerdata2019.py", file)
    assert refused.exit_code == 2 and 'set time_unit = "s"' in refused.output
    read = run("import_powerdata2019.py", file, "--time-unit", "s")
    assert read.exit_code == 0 and "1 domains, 3 steps of 300 s" in read.output


def test_the_importer_reports_a_broken_file_and_writes_nothing(tmp_path):
    write(tmp_path / "cella_pdu6.csv", rows(0.1, 1.2))
    result = run("import_powerdata2019.py", tmp_path, "--out", tmp_path / "packed.csv.gz")
    assert result.exit_code == 2
    assert "line 3: production_power_util = '1.2' is outside 0 to 1; give a fraction" in result.output
    assert not (tmp_path / "packed.csv.gz").exists()


def test_the_committed_set_is_the_first_three_days_of_the_embedded_month():
    traces = read_trace_files(REPOSITORY / "traces" / "synthetic")
    assert traces.synthetic
    assert np.array_equal(traces.value, synthetic_traces(2019).value[:, : 3 * 288])


def test_a_file_says_itself_that_it_is_synthetic_and_no_name_does(tmp_path):
    (committed,) = (REPOSITORY / "traces" / "synthetic").iterdir()
    copy = tmp_path / "cells.csv.gz"
    copy.write_bytes(committed.read_bytes())
    assert read_trace_files(copy).synthetic
    (tmp_path / "synthetic").mkdir()
    assert not read_trace_files(
        write(tmp_path / "synthetic" / "cella_synthetic.csv", rows(0.1, 0.2))
    ).synthetic


@google
def test_googles_five_minute_files_of_cell_a_read_as_documented():
    traces = read_trace_files(GOOGLE / "cella_pdu?.csv.gz", column="measured")
    assert traces.names == ["cella_pdu6", "cella_pdu7", "cella_pdu8"]
    assert (traces.step_s, traces.value.shape) == (300.0, (3, 8928))
    assert traces.value.mean(axis=1).round(3).tolist() == [0.715, 0.702, 0.706]
    assert (traces.value.min(), traces.value.max()) == (0.611, 0.771)


@google
def test_googles_fifteen_minute_file_has_production_a_tenth_below_measured():
    file = GOOGLE / "cella_pdu6_pdu7_15min_measured_production.csv.gz"
    production, measured = (read_trace_files(file, column=column) for column in ("production", "measured"))
    assert (production.step_s, production.value.shape) == (900.0, (2, 2881))
    assert (measured.value - production.value).mean(axis=1).round(2).tolist() == [0.11, 0.09]
