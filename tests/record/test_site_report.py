"""The report of what each site of a run did and spent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpctrip.record.site_report import by_site, table_of, utilisation
from hpctrip.sim.rounds import History

HERE = Path(__file__).parents[1]
LATE = (
    f"plugins=['{HERE / 'points.py'}', '{HERE / 'delayed.py'}']",
    "workload={kind='points', train_samples=400, test_samples=200}",
    "rounds={kind='as they come', num=2}",
    "policy.kind=all",
    "faults={deadline_s=40, mtbf_s=150, mttr_s=60, lost_fraction=0.2}",
)


def test_it_counts_what_each_site_took_part_in_did_and_held_up(written):
    """Three rounds of 2, 3 and 4 of five sites; site i computes for 10 (i + 1) s and sends for 1 s."""
    report = by_site(written())
    assert report["rounds_in_cohort"].tolist() == [3, 3, 2, 1, 0]
    assert report["participation_fraction"].tolist() == pytest.approx([1, 1, 2 / 3, 1 / 3, 0])
    assert report["rounds_straggler"].tolist() == [0, 1, 1, 1, 0]
    assert report["straggler_compute_s"].tolist() == [0, 20, 30, 40, 0]
    assert report["computing_s"].tolist() == pytest.approx([30, 60, 60, 40, 0])
    assert report["sending_s"].tolist() == pytest.approx([3, 3, 2, 1, 0])
    assert report["waiting_s"].tolist() == pytest.approx([10 + 20 + 30, 10 + 20, 10, 0, 0])
    assert report["provisioned_s"].tolist() == pytest.approx([93, 93, 72, 41, 0])
    assert report["utilisation"].tolist() == pytest.approx(
        [30 / 93, 60 / 93, 60 / 72, 40 / 41, np.nan], nan_ok=True
    )
    assert utilisation(report) == pytest.approx(190 / 299)
    head, rows = table_of(written(), report)
    assert [row[head.index("utilised")] for row in rows] == ["32%", "65%", "83%", "98%", "-", "64%"]
    assert "energy_kwh" not in report and "carbon_kg" not in report  # the file does not know them


def test_nobody_waits_for_a_site_that_trains_alone(written, fake_history):
    first, *others = fake_history(3, 5).rows
    report = by_site(written(History((replace(first, num_sites=1), *others))))
    assert report["rounds_straggler"].tolist() == [0, 0, 1, 1, 0]
    assert report["straggler_compute_s"].tolist() == [0, 0, 30, 40, 0]


@pytest.mark.parametrize("lines", [(), LATE], ids=["synchronous", "as they come"])
def test_its_amounts_add_up_to_those_of_the_run(trained, lines):
    grid = ("carbon={kind='daily', mean=300, swing=100}", "price={kind='constant', per_kwh=0.2}")
    run = trained(*grid, *lines)
    report = by_site(run)
    for name, column, unit in (
        ("energy_kwh", "energy_j", 3.6e6),
        ("carbon_kg", "carbon_g", 1e3),
        ("cost", "cost", 1),
    ):
        assert report[name].sum() * unit == pytest.approx(run.rounds[column].sum())
    assert (
        report["computing_s"].sum() > 0
        and report["rounds_straggler"].sum() == (run.rounds["num_sites"] > 1).sum()
    )
    head, rows = table_of(run, report)
    assert [name.split()[0] for name in head][-4:] == ["energy", "CO2", "cost", "straggler"]
    assert rows[-1][:2] == ["all sites", str(len(run.rounds))]


def test_what_is_not_known_in_one_round_is_not_known_of_its_sites(written, fake_history):
    rows = list(fake_history(3, 5).rows)
    for number, row in enumerate(rows):
        carbon_g = np.full(len(row.cohort.site), np.nan if number == 0 else 1.0)
        rows[number] = replace(row, cohort=replace(row.cohort, carbon_g=carbon_g))
    carbon_kg = by_site(written(History(tuple(rows))))["carbon_kg"].tolist()
    assert np.isnan(carbon_kg[:2]).all() and carbon_kg[2:] == [0.002, 0.001, 0]


def test_show_writes_it_as_text_json_csv_and_latex(run_file, hpctrip):
    lines = {
        form: hpctrip("show", "--sites", "--format", form, run_file).out.splitlines()
        for form in ("text", "json", "csv", "latex")
    }
    assert lines["text"][0] == f"{run_file}: synthetic data; simulated time" and lines["text"][2].split()[
        :3
    ] == ["site", "0", "3"]
    (run,) = json.loads("\n".join(lines["json"]))["runs"]
    assert run["sites"][3]["rounds_straggler"] == 1 and run["sites"][3]["straggler_fraction"] == 1 / 3
    assert lines["csv"][0].startswith("site,distance_m,domain,rounds_in_cohort") and len(lines["csv"]) == 6
    assert lines["latex"][1] == r"\begin{tabular}{lrrrrrrr}" and r"100\%" in lines["latex"][5]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(["--format", "csv"], "--format csv is for --sites"), (["--sites"], "holds no finished round")],
)
def test_what_cannot_be_shown_is_refused(written, hpctrip, options, complaint):
    ended = hpctrip("show", written(History()).path, *options)
    assert ended.code == 2 and complaint in ended.err


def test_sites_are_called_by_their_names(written):
    run = written()
    names = pd.Series(["Oslo", "Rome", "", "=1", "Bonn"])
    named = replace(run, sites=run.sites.assign(name=names))
    assert [row[0] for row in table_of(named, by_site(named))[1]][:4] == ["Oslo", "Rome", "site 2", "=1"]
    assert [named.site_name(site) for site in (1, 2, 9)] == ["site 1 (Rome)", "site 2", "site 9"]
