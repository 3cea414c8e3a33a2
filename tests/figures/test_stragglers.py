"""How often and how long each site was the straggler."""

import pytest

from hpctrip.figures import stragglers
from hpctrip.figures.common import reading


def test_rounds_and_hours_are_counted_for_every_site(make_run, drawn):
    lines = drawn("stragglers", make_run("a", k=(2, 4, 4, 6), accuracy=(0.1, 0.2, 0.3, 0.5)))
    # site k - 1 is the straggler of a round of one hour, two thirds of it computing
    assert lines[1:] == [
        "3 1000 3 2 50% 1.33 0.667",
        "1 100 4 1 25% 0.667 0.333",
        "5 4000 1 1 25% 0.667 0.333",
        "5 of 8 sites were never the straggler",
    ]


def test_the_table_has_all_sites_and_all_rounds(make_run):
    (run,) = reading.read_runs([make_run("a")])
    table = stragglers.plot(run).table
    assert len(table) == 8 and table["rounds_straggler"].sum() == 3
    assert table["hours"].sum() == pytest.approx(3)
