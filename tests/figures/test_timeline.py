"""The timeline: its bars are the seconds of the run, and it stays legible."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpctrip.base.units import HOUR_S
from hpctrip.figures import FIGURES, sites
from hpctrip.record.reader import open_run
from hpctrip.sim.rounds import Status

HERE = Path(__file__).parents[1]
LATE = (
    f"plugins=['{HERE / 'points.py'}', '{HERE / 'delayed.py'}']",
    "workload={kind='points', train_samples=400, test_samples=200}",
    "policy.kind=all",
    "stop.max_rounds=8",
    "sites.num_sites=6",
    "faults={deadline_s=40, mtbf_s=150, mttr_s=60, lost_fraction=0.2, late_fraction=0.3, late_s=40}",
)


def seconds(run):
    """(bars as numbers, [site, round] x doing: seconds) of the timeline of a run."""
    table = FIGURES["timeline"](run).table
    bars = table[table["doing"] != "round"].astype({"site": int})
    length_s = (bars["end_h"] - bars["start_h"]) * HOUR_S
    return bars, length_s.groupby([bars["site"], bars["round"], bars["doing"]]).sum().unstack().fillna(0.0)


def test_bars_are_the_seconds_that_sites_compute_send_and_wait(trained):
    run = trained("policy={kind='static', k=6}")
    _, length_s = seconds(run)
    rows = run.cohorts.merge(run.rounds, on="round", suffixes=("", "_of_all"))
    rows = rows.set_index(["site", "round"]).loc[length_s.index]
    assert len(rows) == 18 and [*length_s] == ["computing", "sending", "waiting"]
    waiting_s = rows["makespan_s"] - rows["compute_s"] - rows["comm_s"]
    for doing, expected_s in (("computing", "compute_s"), ("sending", "comm_s")):
        np.testing.assert_allclose(length_s[doing], rows[expected_s], rtol=1e-9)
    np.testing.assert_allclose(length_s["waiting"], waiting_s, rtol=1e-9, atol=2e-6)
    assert (length_s["waiting"] == 0).sum() == 3  # the straggler of each round


@pytest.mark.parametrize("kind", ["{kind='delayed by one'}", "{kind='as they come', num=2}"])
def test_bars_of_late_updates_span_rounds_and_never_cover_each_other(trained, kind):
    run = trained(*LATE, f"rounds={kind}")
    bars, length_s = seconds(run)
    flights = run.flights.set_index(["site", "round"]).loc[length_s.index]
    out, lost = flights["status"] == Status.OUT, flights["status"].isin([Status.LATE, Status.LOST])
    assert out.any() and lost.any() and (length_s["away"] > 0).equals(out)
    assert (length_s["given up"] > 0).equals(lost)
    arrived = flights["status"] == Status.ARRIVED
    took_s = (flights["sent_s"] - flights["start_s"])[arrived]
    np.testing.assert_allclose((length_s["computing"] + length_s["sending"])[arrived], took_s, rtol=1e-9)
    ends_h = run.rounds["clock_s"].to_numpy() / HOUR_S
    assert any(((bars["start_h"] < end) & (end < bars["end_h"])).any() for end in ends_h)
    for _, of_site in bars.sort_values("start_h").groupby("site"):
        assert (of_site["end_h"].to_numpy()[:-1] <= of_site["start_h"].to_numpy()[1:] + 1e-9).all()
    assert bars["end_h"].max() == pytest.approx(ends_h[-1])


def test_of_many_rounds_the_last_are_drawn_and_of_many_sites_those_in_most_of_them(
    make_run, drawn, tmp_path, monkeypatch
):
    monkeypatch.setattr(sites, "MOST_SITES", 3)
    path = make_run("a", k=(6,) * 10 + (2,) * 29 + (5,), accuracy=(0.1,) * 40)
    lines = drawn("timeline", path)
    assert [line.split()[:2] for line in lines[1:-1]] == [["site", "0"], ["site", "1"], ["site", "2"]]
    assert lines[-1] == "rounds 11 to 40 of 40; of 8 sites 5 took part, the 3 in most of them drawn"
    table = pd.read_csv(tmp_path / "out.csv")
    assert table.query("doing == 'round'")["round"].tolist() == [*range(11, 41)]
    assert table["start_h"].min() == 10 and set(table["site"].dropna()) == {0, 1, 2}
    assert set(open_run(path).flights["start_s"]) == {*(HOUR_S * np.arange(40))}
