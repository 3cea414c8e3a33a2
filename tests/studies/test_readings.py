"""Surveys of readings: grids in which variants exclude each other, and verdicts by reading."""

import pandas as pd
import pytest
import tomli_w
from small_study import BASE
from test_claims import seeds

from hpctrip.studies.claims.base import Verdict
from hpctrip.studies.claims.readings import Survey, by_reading, claims_of
from hpctrip.studies.claims.readings_picture import draw_survey
from hpctrip.studies.file import StudyFile
from hpctrip.studies.grid import entries

FAST, SLOW = "PowerTrip", "static optimal"
READINGS = {
    "name": "some",
    "inputs": ["base.toml"],
    "seeds": [1],
    "readings": {"axis": "reading", "claims": "fig09"},
    "axis": [
        {
            "name": "policy",
            "variants": [
                {"label": FAST, "policy": {"kind": "powertrip"}},
                {"label": SLOW, "policy": {"kind": "static", "k": 3}},
            ],
        },
        {
            "name": "reading",
            "variants": [
                {"label": "defaults"},
                {"label": "log", "policy": {"gain": "log"}, "among": [FAST]},
                {"label": "clock", "timing": {"clock": "mean-power"}},
            ],
        },
    ],
}


def test_a_variant_is_combined_with_the_labels_that_it_names(tmp_path):
    (tmp_path / "base.toml").write_text(BASE)
    grid = entries(StudyFile.model_validate(READINGS), str(tmp_path / "some.toml"))
    assert [entry.variant for entry in grid] == [
        "PowerTrip, defaults",
        "PowerTrip, log",
        "PowerTrip, clock",
        "static optimal, defaults",
        "static optimal, clock",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"readings": {"axis": "readings", "claims": "fig09"}}, "no axis of variants is called 'readings'"),
        (
            {"axis": [READINGS["axis"][0] | {"variants": [{"label": "Powertrip"}]}, READINGS["axis"][1]]},
            "among of 'log': no other axis has a variant 'PowerTrip'; did you mean 'Powertrip'?",
        ),
    ],
)
def test_a_label_that_is_none_is_refused(change, message):
    with pytest.raises(ValueError, match="axis") as refused:
        StudyFile.model_validate(READINGS | change)
    assert message in str(refused.value)


@pytest.fixture(scope="module")
def survey():
    """Survey of the base, a reading of PowerTrip alone that reverses the order, and a reading that was not run."""
    choices = [
        *(({"reading": "defaults", "policy": FAST}, run) for run in seeds(1, 1.1)),
        *(({"reading": "defaults", "policy": SLOW}, run) for run in seeds(2, 2.1)),
        *(({"reading": "log", "policy": FAST}, run) for run in seeds(5, 5.1)),
        ({"reading": "clock", "policy": FAST}, None),
    ]
    return Survey.of("fig09", *by_reading("reading", choices))


def test_the_base_speaks_for_what_a_reading_does_not_touch_and_for_nothing_else(survey):
    number = [claim.says for claim in survey.claims].index("PowerTrip takes less time than static optimal")
    verdicts = {reading: findings[number].ordering for reading, findings in survey.findings.items()}
    assert verdicts == {"defaults": Verdict.MET, "log": Verdict.NOT_MET, "clock": Verdict.NOT_RUN}
    lines = survey.lines[survey.lines.index(f"Fig 9: {survey.claims[number].says}") :][1:4]
    assert lines == [
        "  met with 1 of 3 readings: defaults",
        "  not met with 1 of 3 readings: log",
        "  not run with 1 of 3 readings: clock",
    ]


def test_table_page_and_picture_have_every_claim_under_every_reading(survey):
    assert len(survey.table) == 3 * len(claims_of("fig09"))
    lines = survey.markdown.splitlines()
    assert lines[0] == "synthetic data, synthetic power; simulated time"
    assert [line.split(" | ")[0] for line in lines[4:]] == [
        "| defaults",
        "| log",
        "| clock",
    ]
    drawing = draw_survey(survey)
    assert drawing.picture.get_suptitle() == lines[0] and drawing.image().startswith(b"\x89PNG")


def test_a_study_of_readings_ends_with_its_table_and_picture(hpctrip, tmp_path):
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "some.toml").write_text(tomli_w.dumps(READINGS))
    ended = hpctrip("study", tmp_path / "some.toml", "--out", tmp_path / "out", "--jobs", "1")
    assert ended.code == 0, ended.err
    folder = tmp_path / "out/some"
    table = pd.read_csv(folder / "readings.csv", keep_default_na=False)
    assert set(table["reading"]) == {"defaults", "log", "clock"}
    of_static = table[table["claim"] == "PowerTrip takes less time than static optimal"]
    assert set(of_static["ordering"]) <= {"undecided", "not run"}  # one seed decides nothing
    assert (folder / "readings.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "readings.md").exists() and f"picture: {folder / 'readings.png'}" in ended.out
