"""A report is read on a screen: its lines are cut, its control characters escaped, its number of lines bounded."""

import pickle

from hpctrip.base.component import unknown_name
from hpctrip.base.errors import Fault, InputError


def test_a_fault_is_one_line_whatever_it_quotes():
    fault = str(Fault("a\nb" * 10_000_000, "is \x1b[2J" * 10_000, "give\u202e " * 10_000))
    assert fault.isprintable() and len(fault) < 2000
    assert fault.startswith(r"a\nba\nb") and r"is \x1b[2J" in fault and "more characters" in fault


def test_a_report_ends_before_it_fills_a_screen_and_says_how_many_faults_are_left():
    report = str(InputError(faults=[Fault(f"key{n}", "unknown key " + "é" * 200) for n in range(100_000)]))
    assert len(report.encode()) < 4000
    shown = report.splitlines()[:-1]
    assert report.endswith(f"\nand {100_000 - len(shown):,} more")


def test_a_single_fault_is_reported_however_long():
    assert str(InputError("place", "é" * 10_000)).startswith("place: é")
    assert len(str(InputError("𝄞" * 10_000, "𝄞" * 10_000, "𝄞" * 10_000)).encode()) < 4000


def test_suggestions_for_a_huge_name_come_at_once():
    assert unknown_name("polic" + "y" * 10_000_000, ["policy", "power"]).endswith("known: policy, power")
    assert unknown_name(16**5000, ["policy"]) == "known: policy"


def test_an_error_that_travels_from_rank_to_rank_keeps_its_faults():
    error = InputError(faults=[Fault("policy.k", "is 0", "use 1"), Fault("seed", "is -1")])
    told = pickle.loads(pickle.dumps(error))
    assert type(told) is InputError and told.faults == error.faults and str(told) == str(error)
