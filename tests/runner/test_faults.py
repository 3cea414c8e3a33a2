"""A fault of hpctrip is exit code 70 with a traceback; bad input is exit code 2 without one."""

from __future__ import annotations

import pytest

from hpctrip.base.errors import REPORT_FAULT
from hpctrip.sim.step import Simulation
from hpctrip.sim.world import World

PLACES = {
    "while input is read": ("hpctrip.runner.experiment.merge", "check"),
    "while a run is built": (World.build, "run"),
    "in a round": (Simulation.begin, "run"),
    "in a plan": (Simulation.begin, "plan"),
}


def fault(*args, **kwargs):
    raise KeyError("nobody foresaw this")


@pytest.mark.parametrize("when", PLACES)
def test_a_fault_shows_its_traceback_and_asks_for_a_report(when, hpctrip, tiny, monkeypatch, tmp_path):
    place, command = PLACES[when]
    name = place if isinstance(place, str) else f"{place.__module__}.{place.__qualname__}"
    monkeypatch.setattr(name, fault)
    monkeypatch.chdir(tmp_path)
    ended = hpctrip(command, tiny)
    assert ended.code == 70 and "Traceback" in ended.err and "nobody foresaw this" in ended.err
    assert ended.err.endswith(f"hpctrip: {REPORT_FAULT}\n")


def test_an_end_of_file_is_not_taken_for_an_abort(hpctrip, tiny, monkeypatch):
    """click takes an EOFError, which a truncated file raises, for Ctrl-D."""

    def ends(*args):
        raise EOFError

    monkeypatch.setattr("hpctrip.runner.experiment.merge", ends)
    ended = hpctrip("check", tiny)
    assert ended.code == 70 and "EOFError" in ended.err
