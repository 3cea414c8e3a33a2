"""Claims under every reading of the paper: verdicts, table and picture."""

import shutil

import claims
import pandas as pd
import pytest
from paper import readings
from paper.claim import Verdict
from test_claims import seeds
from test_claims_page import HOURS, finish

from hpctrip.studies.studies import read_studies

FAST, SLOW = "PowerTrip", "static optimal"
STUDY = """
name = "some"
seeds = "0..2"
[[axis]]
name = "policy"
variants = [{label = "PowerTrip"}, {label = "static optimal", policy.kind = "static", policy.k = 3}]
[[axis]]
name = "reading"
variants = [{label = "defaults"}, {label = "log", policy.gain = "log", among = ["PowerTrip"]}]
"""


@pytest.fixture(scope="module")
def survey():
    """Survey of the base, a reading of PowerTrip alone that reverses the order, and a reading that was not run."""
    of_readings = {
        "defaults": {FAST: seeds(1, 1.1), SLOW: seeds(2, 2.1)},
        "log": {FAST: seeds(5, 5.1)},
        "clock": {FAST: []},
    }
    return readings.survey("fig09", of_readings)


def test_the_base_speaks_for_what_a_reading_does_not_touch_and_for_nothing_else(survey):
    own = survey[survey["claim"] == "PowerTrip takes less time than the static cohort of 70 sites"].set_index(
        "interpretation"
    )
    verdicts = {"defaults": Verdict.MET, "log": Verdict.NOT_MET, "clock": Verdict.NOT_EXAMINED}
    assert own["ordering"].to_dict() == verdicts
    lines = readings.lines_of(survey)
    first = lines.index("Fig 9: PowerTrip takes less time than the static cohort of 70 sites")
    assert lines[first + 1 : first + 4] == [
        "  met with 1 of 3 interpretations: defaults",
        "  not met with 1 of 3 interpretations: log",
        "  not examined with 1 of 3 interpretations: clock",
    ]


def test_table_page_and_picture_have_every_claim_under_every_reading(survey):
    assert len(survey) == 3 * len(readings.claims_of("fig09"))
    lines = readings.markdown(survey).splitlines()
    assert lines[0] == "synthetic data, synthetic power; simulated time"
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| defaults", "| log", "| clock"]
    drawing = readings.draw(survey)
    assert drawing.picture.get_suptitle() == lines[0] and drawing.image().startswith(b"\x89PNG")


def test_the_script_writes_table_and_picture_beside_the_tables_of_a_study(script, tmp_path):
    (tmp_path / "some.toml").write_text(STUDY)
    (study,) = read_studies(str(tmp_path / "some.toml"), tmp_path)
    for entry in study.entries:
        policy, reading = (label for _, label in entry.choices)
        finish(entry, tmp_path, 5 if reading == "log" else HOURS[policy])
    study.conclude()
    shutil.rmtree(tmp_path / "runs")  # the tables are enough
    ended = script(claims.main, tmp_path / "some", "--readings", "reading")
    assert ended.code == 0, ended.err
    table = pd.read_csv(tmp_path / "some/readings.csv")
    of_static = table[table["claim"] == "PowerTrip takes less time than the static cohort of 70 sites"]
    assert of_static["ordering"].tolist() == ["met", "not met"]
    assert (tmp_path / "some/readings.png").read_bytes().startswith(b"\x89PNG")
    assert "| defaults |" in (tmp_path / "some/readings.md").read_text()
    hours = pd.read_csv(tmp_path / "some/readings_hours.csv").set_index(["interpretation", "variant"])[
        "mean_h"
    ]
    base = {("defaults", policy): HOURS[policy] for policy in (FAST, SLOW)}
    mean = 1.01  # of the three seeds, each 1 % slower than the one before
    expected = base | {("log", FAST): 5}
    assert (hours / mean).to_dict() == pytest.approx(expected)
    wrong = script(claims.main, tmp_path / "some", "--readings", "readings")
    assert wrong.code == 2 and "no such axis; did you mean 'reading'?" in wrong.err


def test_static_optimal_is_looked_for_among_the_sizes_of_each_reading():
    def sizes(*hours):
        return {f"static, {k} %": seeds(*h, k=(k,)) for k, h in zip((10, 20, 30), hours, strict=True)}

    fast = {FAST: seeds(2, 2.2, 2)}
    of_readings = {
        "defaults": fast | sizes((9, 9, 9), (4, 4.1, 4), (8, 8, 8)),
        "clock": fast | sizes((1, 1, 1), (4, 4, 4), (8, 8, 8)),
    }
    table = readings.survey("fig09", of_readings)
    own = table[table["claim"].str.contains("takes less time than static optimal")]
    assert own["ordering"].tolist() == [Verdict.MET, Verdict.NOT_MET]
    assert [text.rpartition(" (")[2] for text in own["ours"]] == [
        "k = 20 for 3 seeds)",
        "k = 10 for 3 seeds)",
    ]
