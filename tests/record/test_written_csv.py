"""CSV files hold what was recorded, and nothing that another program would obey."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

from hpctrip.record.merge import csv_bytes


def test_numbers_keep_their_digits_and_ordinary_texts_are_as_they_are(read_back):
    frame = pd.DataFrame(
        {"x": [0.1, np.nan], "n": [2**62, -1], "name": ["a b", 'c, "d"'], "yes": [True, False]}
    )
    written = read_back(io.BytesIO(csv_bytes(frame)), frame)
    pd.testing.assert_frame_equal(written, frame, check_exact=True)


def test_a_text_is_no_formula_and_no_line_of_its_own():
    texts = ["=1+1", "@x", "-x", "+x", "-3", "+1e3", "", "a\rb\nc", "\x1b[31m"]
    csv = csv_bytes(pd.DataFrame({"=name": texts})).decode()
    assert csv.splitlines() == [
        "'=name", "'=1+1", "'@x", "'-x", "'+x", "-3", "+1e3", '""', "a\\rb\\nc", "\\x1b[31m",
    ]  # fmt: skip
