"""Times of data files: the forms that are read, and the hours that clocks show twice or skip."""

import numpy as np
import pytest

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.sim.times import NotATimeError, column_us, moment_us, moments_us, utc

FIVE = "2024-08-08T05:00:00"
"""In UTC."""


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2024-08-08 05:00",
            "2024-08-08T05:00",
            "2024-08-08T05:00:00.0000000Z",
            "2024-08-08 05:00:00.000000000",
        ),
        *(
            "2024-08-08 05:00:00 UTC",
            "2024-08-08T07:00:00+0200",
            "2024-08-08 07:00:00 +02:00",
            "2024-08-08 05:00+00",
        ),
        *("2024-08-07T22:00-07", "2024-08-08T05:00:00.000Z", "2024-08-08 05:00:00 GMT"),
    ],
)
def test_iso_8601_is_read_as_programs_write_it(text):
    assert utc(moment_us(text)) == FIVE


@pytest.mark.parametrize(
    "text",
    [
        "2019-02-30",
        "05/01/2019",
        "2019",
        "20190501",
        "1714521600",
        "",
        "now",
        "2019-05-01T25:00",
        "2019-05-01Z",
    ],
)
def test_other_texts_are_refused_with_forms_that_are_read(tmp_path, text):
    (tmp_path / "x.csv").write_text(f"when,x\n2019-05-01,1\n{text},1\n")
    with pytest.raises(InputError, match=f"line 3: when = '{text}' is not a time such as .*00Z or .*02:00"):
        column_us(read_table(tmp_path / "x.csv"), "when")


QUARTERS = [f"2025-10-26 {hour:02}:{minute:02}" for hour in (1, 2, 2, 3) for minute in (0, 15, 30, 45)]
PAIRS = sorted(QUARTERS)


@pytest.mark.parametrize("rows", [QUARTERS, QUARTERS[::-1], PAIRS, PAIRS[::-1]], ids=str)
def test_hours_that_clocks_show_twice_are_told_apart_by_the_order_of_rows(rows):
    times_us = moments_us(rows, "Europe/Brussels")
    assert np.diff(np.sort(times_us)).tolist() == [900_000_000] * 15
    assert utc(times_us.min()) == "2025-10-25T23:00:00"
    assert (np.diff(times_us) > 0).all() or rows is not QUARTERS
    assert (np.diff(times_us) < 0).all() or rows != QUARTERS[::-1]


def test_rows_of_several_keys_each_have_an_order():
    rows, keys = [*QUARTERS, *QUARTERS[::-1]], ["a"] * 16 + ["b"] * 16
    times_us = moments_us(rows, "Europe/Brussels", keys)
    assert times_us[:16].tolist() == times_us[16:][::-1].tolist() == sorted(times_us[:16])


def test_times_with_offsets_need_no_order():
    rows = ["2025-10-26 02:00+01:00", "2025-10-26 04:00", "2025-10-26 02:00+02:00", "2025-10-26 01:00"]
    assert [utc(time_us)[11:16] for time_us in moments_us(rows, "Europe/Brussels")] == [
        *("01:00", "03:00", "00:00", "23:00")
    ]


@pytest.mark.parametrize(
    ("rows", "row", "problem"),
    [
        (
            ["2025-10-26 04:00", "2025-10-26 01:00", "2025-10-26 02:00", "2025-10-26 05:00"],
            2,
            "is shown twice by the",
        ),
        (["2025-03-30 01:00", "2025-03-30 02:30"], 1, "is a time that the clocks of its zone skip in spring"),
    ],
)
def test_local_times_that_are_no_moment_are_refused(rows, row, problem):
    with pytest.raises(NotATimeError, match=problem) as error:
        moments_us(rows, "Europe/Brussels")
    assert error.value.row == row
