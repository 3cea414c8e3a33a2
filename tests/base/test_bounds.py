"""Every number, text and list of a component is bounded by itself, so that a new component is covered."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import Field

from hpctrip.base.bounds import LARGEST_INTEGER, LONGEST_LIST, LONGEST_TEXT
from hpctrip.base.component import Component
from hpctrip.base.errors import InputError
from hpctrip.base.files import PathName
from hpctrip.base.inputs import validate
from hpctrip.base.units import Bytes, Seconds


class Inner(Component):
    count: int = Field(1, ge=1)


class Everything(Component):
    count: int = 0
    few: int | None = Field(None, ge=1, le=5)
    number: float = Field(1.0, ge=0)
    length_s: Seconds = 1.0
    size: Bytes | Literal["auto"] = "auto"
    text: str = ""
    path: PathName | None = None
    points: list[list[float]] = []
    inner: Inner = Inner()


@pytest.mark.parametrize(
    "table",
    [
        {"count": LARGEST_INTEGER},
        {"number": 0.0},
        {"number": 1e30},
        {"number": 10**20},
        {"length_s": "-5 min"},
        {"size": "1.5 GB"},
        {"text": "x" * LONGEST_TEXT},
        {"path": f"a folder/{'ü' * 127}"},
        {"points": [[0.5]] * LONGEST_LIST},
    ],
)
def test_ordinary_values_stay_as_they_are(table):
    assert validate(table, Everything) is not None


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"count": 2**63}, "count = 9223372036854775808: must be less than or equal to 9223372036854775807"),
        ({"count": -(2**64)}, "count = -18446744073709551616: must be greater than or equal to -92233"),
        ({"count": 16**5000}, "count = <an integer of 20,001 bits>: must be less"),
        ({"few": 10**400}, "000: must be less than or equal to 5"),
        ({"number": 10**400}, "number = 1000"),
        ({"number": 1e300}, "number = 1e+300: must be 0 or of a magnitude from 1e-30 to 1e+30"),
        ({"number": 5e-324}, "number = 5e-324: must be 0 or of a magnitude from 1e-30"),
        ({"length_s": "1e-40 s"}, "length_s = 1e-40: must be 0"),
        ({"length_s": f"1e{'9' * 5000} s"}, "length_s = inf: must be a finite number"),
        ({"size": 1e300}, "size = 1e+300: must be 0 or of a magnitude"),
        ({"text": "x" * 5000}, "should have at most 4096 characters"),
        ({"text": "a\0b"}, "holds a NUL character"),
        ({"path": "x" * 256}, "names no file: File name too long (256 bytes, the most is 255)"),
        ({"path": "~no_such_user_here/x"}, "there is no user 'no_such_user_here'"),
        ({"points": [[1e-50]]}, "points.0.0 = 1e-50: must be 0 or"),
        ({"points": [[0.5]] * 10_001}, "should have at most 10000 items"),
        ({"inner": {"count": 2**63}}, "inner.count = 9223372036854775808: must be less"),
    ],
)
def test_values_beyond_the_bounds_are_refused_in_one_line(table, line):
    with pytest.raises(InputError) as caught:
        validate(table, Everything)
    report = str(caught.value)
    assert line in report and "\n" not in report and len(report) < 1000
