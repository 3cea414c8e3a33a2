"""The script audit.py: numbers of the result pages against the rows that are kept."""

from pathlib import Path
from types import SimpleNamespace

import audit
import pytest
from paper.studies import read_kept

from hpctrip.config.identity import VERSION

VALUES = {"ratio": "0.85", "table": "\n| a |\n"}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("It takes <!--=ratio-->0.85<!--/--> of the time, within 95 %.", []),
        ("A\n\n<!--=ratio-->0.86<!--/-->", ["page, line 3: ratio is '0.86', the rows give '0.85'"]),
        ("<!--=table-->\n| a |\n<!--/-->", []),
        ("<!--=other-->1<!--/-->", ["page, line 1: no rows give 'other'"]),
        ("Made with hpctrip 0.3.0 and 0.12.0.", []),
        ("It takes 0.85.", ["page: 0.85 stands without a mark and is not a setting"]),
        ("It takes 0.85 of it.", ["page: 0.85 stands without a mark and is not a setting"]),
        (
            "It takes `0.85` and\n\n    -o x=0.85\n\nor 12 % more.",
            ["page: 12 % stands without a mark and is not a setting"],
        ),
    ],
)
def test_a_number_has_a_mark_with_its_value_or_is_a_setting(text, faults):
    assert list(audit.faults(Path("page"), text, VALUES, frozenset({"95 %"}))) == faults


def test_writing_a_page_puts_the_values_between_the_marks():
    page = audit.written("a <!--=ratio-->0<!--/--> b <!--=other-->1<!--/-->", VALUES)
    assert page == "a <!--=ratio-->0.85<!--/--> b <!--=other-->1<!--/-->"


def test_the_pages_say_what_their_rows_give(script):
    ended = script(audit.main)
    assert ended.code == 0, ended.out


def test_rows_that_earlier_rules_made_are_left_out(tmp_path):
    head = "run,seed,identity,status,clock_s,target_accuracy,synthetic,identity_version\n"
    rows = [f'"a, seed {seed}",{seed},{seed},finished,3600,0.45,,{VERSION - seed}\n' for seed in (0, 1)]
    (tmp_path / "x.csv").write_text(head + "".join(rows))
    curve = "identity,round,clock_s,accuracy,num_sites\n"
    (tmp_path / "x_curves.csv").write_text(curve + "0,1,3600,0.5,10\n1,1,3600,0.5,10\n")
    assert [run.meta["seed"] for run in read_kept(tmp_path)["x"]["a"]] == [0]


def test_a_page_that_quotes_several_pages_of_results_has_the_values_of_all(monkeypatch, tmp_path):
    def module(name, quoted_on):
        values = {name: "0.85"}
        return SimpleNamespace(
            PAGES=(f"{name}.md",),
            END="##",
            STATED=frozenset(),
            QUOTED_ON=quoted_on,
            values=lambda results: values,
        )

    monkeypatch.setattr(audit, "PAGES", (module("one", ("README.md",)), module("two", ("README.md",))))
    values = {page: values for page, _, values, _ in audit.audited(tmp_path)}
    assert values == {
        "one.md": {"one": "0.85"},
        "two.md": {"two": "0.85"},
        "README.md": {"one": "0.85", "two": "0.85"},
    }
