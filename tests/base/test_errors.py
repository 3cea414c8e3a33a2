"""A report is read on a screen: its lines are cut, its control characters escaped, its number of lines bounded."""

import pickle

import pytest

from hpctrip.base import errors
from hpctrip.base.errors import Fault, InputError, how_to_install, require


def test_a_fault_is_one_line_whatever_it_quotes():
    fault = str(Fault("a\nb" * 10_000, "is \x1b[2J" * 10_000, "give\u202e " * 10_000))
    assert fault.isprintable() and len(fault) < 2000
    assert fault.startswith(r"a\nba\nb") and r"is \x1b[2J" in fault and "more characters" in fault


def test_a_report_ends_before_it_fills_a_screen_and_says_how_many_faults_are_left():
    report = str(InputError(faults=[Fault(f"key{n}", "unknown key " + "é" * 200) for n in range(100_000)]))
    assert len(report.encode()) < 4000
    shown = report.splitlines()[:-1]
    assert report.endswith(f"\nand {100_000 - len(shown):,} more")
    assert "more characters" in str(InputError("x" * 9999, "y" * 9999))  # one fault is always shown


def test_an_error_that_travels_from_rank_to_rank_keeps_its_faults():
    error = InputError(faults=[Fault("policy.k", "is 0", "use 1"), Fault("seed", "is -1")])
    sent = pickle.loads(pickle.dumps(error))
    assert type(sent) is InputError and sent.faults == error.faults and str(sent) == str(error)


def test_an_extra_is_installed_from_the_checkout_or_else_by_the_name_of_the_package(monkeypatch, tmp_path):
    assert how_to_install("llm") == "pip install -e '.[llm]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages/hpctrip/base/errors.py"))
    assert how_to_install("llm") == "pip install 'hpctrip[llm]'"


def test_only_missing_packages_are_named():
    require("here", "llm", "numpy")
    with pytest.raises(InputError) as caught:
        require("here", "llm", "numpy", "no_such_package", "nor_this_one")
    assert (
        str(caught.value) == f"here: no_such_package and nor_this_one not installed; {how_to_install('llm')}"
    )
