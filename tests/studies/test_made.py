"""Executed studies: ledger, table and figure, a second start, and imports on another machine."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_study import STUDY, ledger_of

from hpctrip.base.csv import read_table
from hpctrip.config.inputs import deep, resolved
from hpctrip.figures import FIGURES
from hpctrip.record.lock import OutputLock
from hpctrip.record.reader import open_run
from hpctrip.runner.experiment import input_of
from hpctrip.sim.policies import POLICIES
from hpctrip.studies import grid, run_store
from hpctrip.studies import study as study_module
from hpctrip.studies.run_store import RunStore, differences
from hpctrip.studies.studies import Changes, read_studies, sweep_study

ROOT = Path(__file__).parents[2]
NAMES = [f"policy.k = {k}, seed {seed}" for k in (2, 3) for seed in (4, 5)]


def state_of(folder):
    """{results file: its modification time}."""
    return {file.name: file.stat().st_mtime_ns for file in (folder / "out" / "runs").glob("*.h5")}


def statuses(ended):
    """{run: status} in the table of `study status`."""
    assert ended.code == 0, ended.err
    lines = [line.split("  ") for line in ended.out.splitlines()[:-1]]
    return {next(part for part in line[1:] if part).strip(): line[0].strip() for line in lines}


def copy_inputs(folder, to):
    """Copy a study without its results."""
    for name in ("base.toml", "study.toml"):
        shutil.copy(folder / name, to)


def test_every_run_is_made_once_and_stands_in_the_ledger_with_its_digest(made):
    assert made.ended.code == 0, made.ended.err
    ledger = ledger_of(made.folder)
    assert list(ledger.index) == NAMES and set(ledger["status"]) == {"finished"}
    for _, row in ledger.iterrows():
        run = open_run(made.folder / "out" / row["file"])
        assert run.path.stem == row["identity"] and run.meta["params_digest"] == row["digest"]
        assert len(run.rounds) == row["rounds"] and len(run.meta["starts"]) == 1
        assert (run.meta["seed"], run.setting("policy.k")) == (row["seed"], row["policy.k"])
    assert ledger["digest"].nunique() == 4
    left = {file.suffix for file in (made.folder / "out" / "runs").iterdir()}
    assert left == {".h5"}  # no checkpoints, locks or logs of finished runs
    assert list((made.folder / "out" / "logs").iterdir()) == []


def test_it_ends_with_the_table_and_the_figure(made):
    table = pd.read_csv(made.folder / "out/two/table.csv")
    assert table["variant"].tolist() == ["policy.k = 2", "policy.k = 3"]
    assert table["num_seeds"].tolist() == [2, 2] and table["num_reached"].tolist() == [0, 0]
    runs = [open_run(made.folder / "out" / file) for file in ledger_of(made.folder)["file"]]
    spent_s = [run.rounds["clock_s"].iloc[-1] for run in runs]
    assert table["policy.k"].tolist() == [2, 3] and set(table["mean_is"]) == {"at least"}
    assert table["mean_s"].tolist() == pytest.approx([sum(spent_s[:2]) / 2, sum(spent_s[2:]) / 2])
    assert "| policy.k = 2 |" in (made.folder / "out/two/table.md").read_text()
    assert (made.folder / "out/two/figures/sweep.png").stat().st_size > 1000
    assert list(pd.read_csv(made.folder / "out/two/figures/sweep.csv")["k"]) == [2, 3]
    assert "figure sweep:" in made.ended.out.splitlines()  # its table looks like that of the study
    assert "Two cohort sizes" in made.ended.out and "finished: policy.k" in made.ended.out


def test_the_table_at_another_target_is_of_the_recorded_curves_and_changes_no_file(copied, study):
    before = {path: path.read_bytes() for path in copied.rglob("*.csv")}
    runs = [open_run(copied / "out" / file) for file in ledger_of(copied)["file"]]
    target = min(run.rounds["accuracy"].max() for run in runs)
    ended = study(copied, "--target", f"{target}", do="tables")
    hours = [sum(run.time_to(target) for run in runs[first : first + 2]) / 7200 for first in (0, 2)]
    rows = [line for line in ended.out.splitlines() if line.startswith("policy.k = ")]
    assert [float(re.search(r"k = \d +([\d.]+)", row)[1]) for row in rows] == pytest.approx(hours, rel=5e-3)
    assert all(" 2/2 " in row for row in rows) and f"at an accuracy of {target:g}" in ended.out
    latex = study(copied, "--target", f"{target}", "--format", "latex", do="tables").out
    assert f"simulated time to an accuracy of {target:g}, arithmetic mean" in latex
    refused = study(copied, "--target", "0.1", "--figure", "sweep", do="tables")
    refused.check_refused(['--target: is of the table; write --figure "sweep target=0.1"'])
    assert {path: path.read_bytes() for path in copied.rglob("*.csv")} == before


def test_runs_of_two_machines_are_one_study_once_their_files_lie_together(made, study, tmp_path):
    """As docs/howto/studies.md says: a part each, a copy of the runs, the tables."""
    parts = [shutil.copytree(made.folder, tmp_path / name) for name in "ab"]
    for part, own in zip(parts, (slice(0, 2), slice(1, 4)), strict=True):  # one run on both
        files = ledger_of(made.folder)["file"]
        for file in set(files) - set(files[own]):
            (part / "out" / file).unlink()
        shutil.rmtree(part / "out/two")
    subprocess.run(["cp", "-rn", f"{parts[1]}/out/runs/.", f"{parts[0]}/out/runs/"])
    ended = study(parts[0], do="tables")
    assert ended.code == 0 and "0 of" not in ended.out, ended.err
    for name in ("table.csv", "runs.csv", "curves.csv", "sites.csv"):
        assert (parts[0] / "out/two" / name).read_bytes() == (made.folder / "out/two" / name).read_bytes()


def test_the_python_of_the_docs_draws_a_studys_curves(made, monkeypatch, tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs/howto/studies.md").read_text()
    code = re.search(r'(?s)title="own_curves.py"\n(.*?)```', page)[1]
    monkeypatch.chdir(tmp_path)
    names = {}
    code = code.replace("results/studies/fig09-small", str(made.folder / "out/two"))
    exec(code.replace(">= 0.3", ">= 0"), names)
    runs = [open_run(made.folder / "out" / file) for file in ledger_of(made.folder)["file"]]
    assert len(names["rounds"]) == sum(len(run.rounds) for run in runs) and Path("own_curves.pdf").exists()
    axes, printed = names["plt"].gca(), capsys.readouterr().out
    assert len(axes.lines) == 4 and len(axes.get_legend().texts) == 2 and "policy.k = 3" in printed
    names["plt"].close("all")


def test_a_run_of_a_study_without_inputs_is_called_like_it(hpctrip, tmp_path):
    (tmp_path / "own.toml").write_text('name = "own"\nseeds = [0]\n')
    (study,) = read_studies(str(tmp_path / "own.toml"), tmp_path)
    assert [entry.run_input.experiment.name for entry in study.entries] == ["own"]


def test_a_value_of_an_axis_has_a_text_also_where_it_is_an_empty_table():
    shown = [grid.shown(value) for value in ({}, {"kind": "random", "k": 2}, 0.5)]
    assert shown == ["{}", "random k = 2", "0.5"]


def test_the_table_tells_deadlines_that_were_missed_and_the_sites_what_they_spent(hpctrip, tiny, tmp_path):
    grid = ("carbon={kind='constant', per_kwh=300}", "price={kind='constant', per_kwh=0.2}")
    grid += ("accounts.currency=SEK", "stop.max_rounds=1")
    options = [*(word for line in grid for word in ("-o", line)), "--out", tmp_path]
    sweeps = (
        "--sweep",
        "policy.objective={kind='deadline',deadline_s=3600},{kind='time'}",
        "--sweep",
        "seed=0,1",
    )
    ended = hpctrip("run", tiny, *options, *sweeps)
    assert ended.code == 0 and "1 h: missed by 2 of 2" in ended.out, ended.err
    (folder,) = (path.parent for path in tmp_path.rglob("table.csv"))
    table, sites = pd.read_csv(folder / "table.csv"), pd.read_csv(folder / "sites.csv")
    assert table["num_missed"].tolist() == [2, 0] and table["deadline_s"][0] == 3600
    runs = pd.read_csv(folder / "runs.csv").set_index("identity")
    for name in ("energy_kwh", "carbon_kg"):
        amounts = sites.groupby("identity")[name].sum()
        assert amounts[runs.index].tolist() == pytest.approx(runs[name].tolist()) and runs[name].gt(0).all()
    for name in ("energy_kwh", "carbon_kg", "cost"):
        means = runs.groupby("variant")[name].mean()[table["variant"]]
        assert table[name].tolist() == pytest.approx(means.tolist()) and means.gt(0).all()
    page = (folder / "table.md").read_text()
    assert set(table["currency"]) == {"SEK"} and f"| {table['cost'][0]:.4g} SEK |" in page
    assert "| energy kWh | CO2 kg | cost |" in page and "arithmetic mean over the seeds" in page
    columns = {name for path in folder.glob("*.csv") for name in pd.read_csv(path) if "input." not in name}
    assert len([*folder.glob("*.csv")]) == 5 and {"mean_s", "clock_s", "computing_s"} <= columns
    assert not [name for name in columns if re.search("_(h|min|ms|j|wh|mwh|g|t)$", name)]
    ended = hpctrip("run", tiny, *options, *sweeps, "-o", "stop.deadline_s='2 h'")  # of any policy
    assert (
        ended.out.count("2 h: missed by 2 of 2") == 2 and "finished:" not in ended.out
    )  # the runs are the same


def test_an_artifact_holds_inputs_results_tables_figures_and_checksums_and_needs_nothing_else(
    made, study, tmp_path, hpctrip
):
    folder = tmp_path / "new" / "artifact"
    done = study(made.folder, folder, "--author", "Jane Doe", do="export")
    assert done.code == 0 and done.out == f"artifact: {folder}, 4 of 4 runs\n", done.err
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    crate = json.loads((folder / "ro-crate-metadata.json").read_text())
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    assert files - {"SHA256SUMS", "ro-crate-metadata.json"} == {
        name for name, entity in entities.items() if entity["@type"] == "File"
    }
    assert entities["#author"]["name"] == "Jane Doe" and "affiliation" not in entities["#author"]
    actions = [entity for entity in crate["@graph"] if entity["@type"] == "CreateAction"]
    assert [action["name"] for action in actions] == NAMES
    for action in actions:
        used = [action[name] for name in ("object", "result", "instrument")]
        assert all(part["@id"] in entities for part in used) and action["endTime"]
    commands = pd.read_csv(folder / "tables/commands.csv")
    assert commands["command"].notna().all() and commands["wall_s"].gt(0).all()
    assert hpctrip("verify", folder / "runs").code == 0
    again = ("--out", tmp_path / "again.h5", "-o", "stop.max_rounds=1")
    assert hpctrip("run", next((folder / "inputs").glob("*.toml")), *again).code == 0
    study(made.folder, folder, do="export").check_refused(["exists already; name a new folder"])
    study(made.folder, "-o", "policy.k=4", tmp_path / "a", do="export").check_refused(["no finished run"])
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["artifact"]


@pytest.mark.parametrize("author", [None, "Jane Doe, University of X <https://x.example>"])
def test_an_artifact_is_the_process_run_crate_that_the_validator_asks_for(made, study, tmp_path, author):
    """The properties that rocrate-validator 0.13 asks for, as docs/howto/studies.md says."""
    options = ["--author", author, "--license", "CC-BY-4.0"] if author else []
    study(made.folder, tmp_path / "artifact", *options, do="export")
    crate = json.loads((tmp_path / "artifact" / "ro-crate-metadata.json").read_text())
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    root = entities["./"]
    assert entities[root["license"]["@id"]].keys() >= {"name", "description"}  # required
    assert not author or root["license"]["@id"] == "https://spdx.org/licenses/CC-BY-4.0"
    who = {"@id": "#author"} if author else None
    assert root.get("author") == who
    for action in (entities[each["@id"]] for each in root["mentions"]):
        assert action.get("agent") == who and action["description"]
        program = entities[action["instrument"]["@id"]]
        assert all(program[name].startswith("https://") for name in ("@id", "url"))
        assert all(
            isinstance(action[name], dict) for name in ("object", "result")
        )  # one value, not a list of one
    if author and "<" in author:
        assert entities["#author"]["affiliation"] == root["publisher"] == {"@id": "https://x.example"}
        assert entities["https://x.example"]["url"] == "https://x.example"


@pytest.mark.parametrize("option", [("--author", "Jane, <x>"), ("--license", "as you like")])
def test_an_author_or_a_license_that_cannot_be_read_is_refused(made, study, tmp_path, option):
    study(made.folder, tmp_path / "new", *option, do="export").check_refused([" ".join(option)])
    assert not list(tmp_path.iterdir())


def test_a_figure_of_a_study_has_its_runs_and_labels_only_and_is_drawn_in_every_format(made, study, hpctrip):
    done = study(
        made.folder, "--figure", "sweep target=0.02 format=pdf,svg", "--figure", "curves", do="tables"
    )
    assert done.code == 0, done.err
    figures = made.folder / "out" / "two" / "figures"
    names = {"sweep-target-0.02.pdf", "sweep-target-0.02.svg", "sweep-target-0.02.csv", "curves.png"}
    assert names <= {path.name for path in figures.iterdir()}
    refused = hpctrip("plot", "curves", made.folder / "out" / "two")
    refused.check_refused(["studies (two)", "hpctrip study tables", "--figure"])


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("sweep target", ["--figure sweep target", "key=value"]),
        ("sweep format=gif", ["--figure sweep format=gif", "png"]),
        ("swep", ["no figure is called 'swep'"]),
        ("network site=3", ["network: has no option 'site'"]),
        (
            "league baseline='powertrip round_time=clock'",
            ["no scenario in which powertrip round_time=clock ran"],
        ),
        ("league baseline='powertrip", ["no closing quotation", "close the quotes"]),
    ],
)
def test_a_wrong_figure_is_one_line(made, study, text, fragments):
    study(made.folder, "--figure", text, do="tables").check_refused(fragments)


def test_the_folder_of_several_studies_is_no_comparison(copied, hpctrip, study):
    text = (copied / "study.toml").read_text().replace('"two"', '"other"')
    (copied / "study.toml").write_text(text.replace("[4, 5]", "[4]"))
    assert study(copied).code == 0
    for folder in (copied / "out", copied / "out" / "runs"):
        hpctrip("plot", "curves", folder).check_refused(["studies (other, two)", "draw one of them"])


def test_the_table_for_latex_stands_alone_on_stdout(made, study):
    done = study(made.folder, "--format", "latex", do="tables")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[:2] == [r"\begin{table}", r"\centering"] and lines[-1] == r"\end{table}"
    assert lines[2].startswith(
        r"\caption{Two cohort sizes. TTA: simulated time to an accuracy of 1, arithmetic mean over"
    )
    assert r"95 \% interval. Ratio to policy.k = 2" in lines[2] and lines[2].endswith(
        "Energy, CO2 and cost: arithmetic means of whole runs. Synthetic: data, power.}"
    )
    assert lines[3:5] == [r"\begin{tabular}{lrrrrrr}", r"\toprule"] and lines[-2] == r"\end{tabular}"
    assert lines[5].endswith(r"energy kWh \\") and lines[7].split(" & ")[-1][0].isdigit()
    assert r"95 \%" in lines[5] and len(lines) == 12
    assert lines[7].startswith("policy.k = 2 & $>$ 0.")  # a bound


def test_a_fault_in_a_figure_is_no_figure_that_cannot_be_drawn(copied, study, monkeypatch):
    def lacks_a_key(runs, **options):
        return {}["k"]

    monkeypatch.setitem(FIGURES, "sweep", replace(FIGURES["sweep"], draw=lacks_a_key))
    ended = study(copied)
    assert ended.code == 70 and "KeyError: 'k'" in ended.err and "not drawn" not in ended.out


def test_a_figure_of_what_imported_runs_lack_is_left_out(made, study, tmp_path):
    copy_inputs(made.folder, tmp_path)
    figures = ("network", "sites", "pareto")
    more = "".join(f'[[figure]]\nname = "{name}"\n' for name in figures)
    (tmp_path / "study.toml").write_text(STUDY + more)
    imported = study(tmp_path, "--import", made.folder / "out/two/ledger.csv")
    assert imported.code == 0, imported.err
    for figure in figures:
        (line,) = (line for line in imported.out.splitlines() if f"figure {figure} not drawn" in line)
        assert "not drawn: the runs: " in line and "imported" in line
    assert (tmp_path / "out/two/figures/sweep.png").exists()


def test_started_again_it_makes_nothing_and_reports_the_same(made, study):
    before, ledger = state_of(made.folder), (made.folder / "out/two/ledger.csv").read_bytes()
    again = study(made.folder)
    assert again.code == 0 and "Two cohort sizes" in again.out and " missing, " not in again.out
    assert state_of(made.folder) == before and (made.folder / "out/two/ledger.csv").read_bytes() == ledger


def test_a_changed_base_input_makes_stale_what_it_changes_and_only_that(copied, study):
    text = STUDY.replace("values = [2, 3]", "values = [2, 4]").replace("seeds = [4, 5]", "seeds = [5, 6]")
    (copied / "study.toml").write_text(text)
    assert statuses(study(copied, do="status")) == {
        "policy.k = 2, seed 5": "finished",
        "policy.k = 2, seed 6": "planned",
        "policy.k = 4, seed 5": "planned",
        "policy.k = 4, seed 6": "planned",
    }
    (copied / "study.toml").write_text(STUDY)
    base = (copied / "base.toml").read_text()
    (copied / "base.toml").write_text(base.replace("max_rounds = 6", "max_rounds = 1"))
    assert statuses(study(copied, do="status")) == dict.fromkeys(NAMES, "stale")
    before = state_of(copied)
    only = study(copied, "--only", "k = 3, seed 5", "--jobs", "1")
    assert only.code == 0, only.err
    rows = re.findall("^policy.k = .*", only.out, re.MULTILINE)
    assert len(rows) == 1 and rows[0].startswith("policy.k = 3 "), (
        rows
    )  # of k = 2 nothing is there or was asked
    assert statuses(study(copied, do="status")) == dict.fromkeys(NAMES, "stale") | {NAMES[3]: "finished"}
    (new,) = state_of(copied).keys() - before.keys()
    assert len(open_run(copied / "out/runs" / new).rounds) == 1
    (copied / "base.toml").write_text(base)  # as it was: what was made then is there
    assert set(statuses(study(copied, do="status")).values()) == {"finished"}


def test_a_list_opens_only_the_results_that_changed_since_the_ledger_was_written(copied, study, monkeypatch):
    opened = []
    monkeypatch.setattr(run_store, "open_run", lambda file: opened.append(file) or open_run(file))
    assert set(statuses(study(copied, do="status")).values()) == {"finished"} and opened == []
    changed = sorted((copied / "out/runs").glob("*.h5"))[0]
    os.utime(changed)
    assert set(statuses(study(copied, do="status")).values()) == {"finished"} and opened == [changed]


def test_no_file_is_looked_for_of_runs_that_have_not_begun(copied, study, monkeypatch):
    monkeypatch.setattr(run_store.RunStore, "inspect", lambda *_: pytest.fail("looked"))
    statuses_now = statuses(study(copied, "-o", "seed=40..49", do="status"))
    assert len(statuses_now) == 20 and set(statuses_now.values()) == {"planned"}


def test_a_list_of_a_study_that_was_never_made_takes_what_other_studies_know(copied, study, monkeypatch):
    opened = []
    monkeypatch.setattr(run_store, "open_run", lambda file: opened.append(file) or open_run(file))
    (copied / "study.toml").write_text(STUDY.replace('name = "two"', 'name = "other"'))
    assert set(statuses(study(copied, do="status")).values()) == {"finished"} and opened == []
    assert not (copied / "out/other").exists()
    os.utime(sorted((copied / "out/runs").glob("*.h5"))[0])
    assert study(copied).code == 0 and len(opened) == 1
    assert set(ledger_of(copied, "other")["digest"]) == set(ledger_of(copied)["digest"])


def test_the_seeds_of_a_combination_share_its_validation(copied, monkeypatch):
    validated = []
    monkeypatch.setattr(grid, "input_of", lambda *layers: validated.append(layers) or input_of(*layers))
    many = str(copied / "study.toml"), copied / "out", Changes(["seed=0..49"])
    (study,) = read_studies(*many)
    assert len(study.entries) == 100 and len(validated) == 2
    alone = [
        read_studies(str(copied / "study.toml"), copied / "out", Changes([f"seed={seed}"]))[0]
        for seed in (0, 49)
    ]
    identities = [entry.identity for one in alone for entry in one.entries]
    assert identities == [study.entries[number].identity for number in (0, 50, 49, 99)]


def test_a_study_without_a_target_has_a_ledger(copied):
    read_studies(str(copied / "study.toml"), copied / "out", Changes(["stop.target_accuracy=none"]))[
        0
    ].write_ledger()
    assert set(ledger_of(copied)["target_accuracy"]) == {"NaN"}


def test_another_clock_takes_what_was_trained(copied, study):
    before = ledger_of(copied).loc["policy.k = 3, seed 5"]
    ended = study(copied, "-o", "timing.clock=mean-power", "--only", "k = 3, seed 5")
    assert ended.code == 0, ended.err
    row = ledger_of(copied).loc["policy.k = 3, seed 5"]
    run = open_run(copied / "out" / row["file"])
    assert run.setting("timing.clock") == "mean-power" and run.meta["stored_rounds"] == len(run.rounds) == 6
    assert row["digest"] == before["digest"] and row["identity"] != before["identity"]


def test_neither_names_nor_places_make_another_run(copied, study, hpctrip):
    (copied / "elsewhere").mkdir()
    (copied / "base.toml").rename(copied / "elsewhere/base.toml")
    text = STUDY.replace('"base.toml"', '"elsewhere/base.toml"').replace('name = "two"', 'name = "other"', 1)
    (copied / "study.toml").write_text(text.replace("[[axis]]", '[[axis]]\nname = "k"'))
    listed = statuses(study(copied, "-o", "label=mine", "-o", "checkpoint.every_s=7", do="status"))
    assert listed == {name.replace("policy.k", "k"): "finished" for name in NAMES}


def test_a_study_includes_others_and_makes_shared_runs_once(copied, hpctrip):
    (copied / "third.toml").write_text(
        STUDY.replace('name = "two"', 'name = "third"', 1).replace("[2, 3]", "[3]")
    )
    (copied / "all.toml").write_text('name = "all"\nstudies = ["study.toml", "third.toml"]\n')
    ended = hpctrip("study", copied / "all.toml", "--out", copied / "out")
    assert ended.code == 0, ended.err
    assert (copied / "out/two/table.csv").exists() and (copied / "out/third/table.csv").exists()
    assert len(statuses(hpctrip("study", "status", copied / "all.toml", "--out", copied / "out"))) == 4


def test_overlays_are_laid_over_the_inputs_of_all_studies_below_what_varies(copied, hpctrip):
    (copied / "world.toml").write_text(
        "[policy]\nk = 1\n[timing]\nclock = 'mean-power'\n[train]\nlr = 0.03\n"
    )
    (copied / "top.toml").write_text("[train]\nlr = 0.04\n")
    inner = STUDY.replace(
        'name = "two"', 'name = "two"\noverlays = ["../top.toml"]\ncommon.train.lr = 0.05', 1
    )
    (copied / "within").mkdir()
    (copied / "within/inner.toml").write_text(inner.replace('"base.toml"', '"../base.toml"'))
    (copied / "all.toml").write_text(
        'name = "all"\noverlays = ["world.toml"]\nstudies = ["within/inner.toml"]\n'
    )
    (study,) = read_studies(str(copied / "all.toml"), copied / "out")
    assert study.folder == copied / "out/all/two"  # apart from the study without them
    experiments = [entry.run_input.experiment for entry in study.entries]
    assert [(e.policy.k, str(e.timing.clock), e.train.lr) for e in experiments] == [
        (k, "mean-power", 0.03) for k in (2, 2, 3, 3)
    ]


def test_a_figure_that_cannot_be_drawn_is_told_before_anything_is_trained(copied, study, monkeypatch):
    monkeypatch.setattr("hpctrip.studies.run._execute", lambda *args: False)
    (copied / "study.toml").write_text(f'{STUDY}\n[[figure]]\nname = "league"\n')
    ended = study(copied, "-o", "train.lr=0.02")
    warning = "warning: figure league cannot be drawn of these runs: "
    assert warning in ended.out and ended.out.count("warning") == 1


def test_tables_and_figures_of_curves_open_no_file_of_finished_runs_and_are_the_same(
    copied, study, monkeypatch
):
    names = "table.csv", "runs.csv", "curves.csv", "sites.csv", "table.md", "figures/curves.csv"
    tables = [copied / "out/two" / name for name in names]
    assert study(copied, do="tables").code == 0
    before, opened = [table.read_text() for table in tables], []
    for module in (run_store, study_module):
        monkeypatch.setattr(module, "open_run", lambda file: opened.append(file) or open_run(file))
    assert study(copied, do="tables").code == 0
    assert [table.read_text() for table in tables] == before and opened == []
    changed = sorted((copied / "out/runs").glob("*.h5"))[0]
    os.utime(changed)
    assert study(copied, do="tables").code == 0
    assert [table.read_text() for table in tables] == before and {*opened} == {changed}


def test_ratios_are_to_the_first_variant_of_the_same_world(copied, study):
    worlds = (
        '[[axis]]\nname = "world"\nvariants = [{label = "a"}, {label = "b", timing.clock = "mean-power"}]\n'
    )
    (copied / "study.toml").write_text(
        STUDY.partition("[[figure]]")[0].replace("[[axis]]", f"{worlds}[[axis]]", 1)
    )
    done = study(copied, "-o", "stop.target_accuracy=0.01", "-o", "seed=4")
    assert done.code == 0 and "ratio to the first of its world" in done.out, done.err
    table = pd.read_csv(copied / "out/two/table.csv")
    ratios = table["mean_s"].to_numpy() / table["mean_s"].to_numpy()[[0, 0, 2, 2]]
    assert table["ratio"].tolist() == pytest.approx(ratios) and table["mean_s"].nunique() == 4


def test_a_sweep_on_the_command_line_is_such_a_study(copied, hpctrip, monkeypatch):
    monkeypatch.chdir(copied)
    ended = hpctrip("run", "base.toml", "--sweep", "policy.k=2,3", "--sweep", "seed=4..5", "--out", "out")
    assert ended.code == 0, ended.err
    assert "tiny over policy.k x seed" in ended.out and " missing, " not in ended.out
    assert set(ledger_of(copied, "tiny-sweep_policy.k_seed")["status"]) == {"finished"}
    grid = ["base.toml", "--sweep", "policy.k=2,3", "--sweep", "seed=4..5", "--out", "out"]
    table = hpctrip("study", "tables", *grid, "--format", "latex")
    assert (
        r"\caption{tiny over policy.k x seed. TTA" in table.out
        and "4 finished" in hpctrip("study", "status", *grid).out
    )


def test_a_sweep_that_grows_keeps_its_rows_and_one_with_other_overrides_its_folder(
    copied, hpctrip, monkeypatch
):
    monkeypatch.chdir(copied)
    words = ["run", "base.toml", "--sweep", "policy.k=2,3", "--out", "out"]
    assert hpctrip(*words, "--sweep", "seed=5").code == 0
    assert hpctrip(*words, "--sweep", "seed=4").code == 0
    (folder,) = Path("out").glob("tiny-sweep*")
    assert pd.read_csv(folder / "table.csv")["num_seeds"].tolist() == [2, 2]
    assert set(ledger_of(copied, folder.name)["status"]) == {"finished"}
    assert hpctrip(*words, "--sweep", "seed=4", "-o", "stop.max_rounds=1").code == 0
    (other,) = {*Path("out").glob("tiny-sweep*")} - {folder}
    assert pd.read_csv(folder / "table.csv")["num_seeds"].tolist() == [2, 2]
    assert pd.read_csv(other / "table.csv")["num_seeds"].tolist() == [1, 1]


def test_a_sweep_of_whole_policies_keeps_no_keys_of_another_one(copied, monkeypatch):
    monkeypatch.chdir(copied)
    Path("base.toml").write_text(Path("base.toml").read_text() + "policy.k = 3\n")
    study = sweep_study(["base.toml"], Path("out"), Changes(sweeps=["policy=static,all,powertrip"]))
    policies = [entry.run_input.experiment.policy for entry in study.entries]
    assert [policy.kind for policy in policies] == ["static", "all", "powertrip"] and policies[0].k == 3
    assert study.entries[1].name == "policy = all, seed 0"
    tables = 'policy={kind="static",k=2},{kind="powertrip",objective={kind="zeus"},gain="log"}'
    keyed = sweep_study(["base.toml"], Path("out"), Changes(sweeps=[tables]))
    assert [entry.axes["policy"] for entry in keyed.entries] == [
        "static k = 2",
        "powertrip objective.kind = zeus, gain = log",
    ]


def test_the_folder_of_a_sweep_tells_the_command_that_draws_it(copied, hpctrip, monkeypatch):
    monkeypatch.chdir(copied)
    sweep = ("--sweep", "policy.k=2,3", "--sweep", "seed=4..5", "--out", "out")
    assert hpctrip("run", "base.toml", "-o", "train.lr = 0.1", *sweep, "-o", "stop.max_rounds=1").code == 0
    (folder,) = Path("out").glob("tiny-sweep*")
    for words in (("plot", "policies", folder), ("study", "tables", folder)):
        refused = hpctrip(*words)
        refused.check_refused([command := "hpctrip study tables base.toml -o 'train.lr = 0.1'", "--out out"])
        shown = shlex.split(refused.err[refused.err.index(command) :])
        drawn = hpctrip(
            *(word for word in shown[1:] if word not in ("--figure", "FIGURE")), "--figure", "policies"
        )
        assert drawn.code == 0 and f"picture: {folder}/figures/policies.png" in drawn.out
    # without one input file, `study tables` cannot name it
    assert hpctrip("run", "base.toml", "base.toml", *sweep, "-o", "stop.max_rounds=1").code == 0
    (other,) = {*Path("out").glob("tiny-sweep*")} - {folder}
    for words in (("plot", "policies", other), ("study", "tables", other), ("study", "tables", ".")):
        hpctrip(*words).check_refused(["hpctrip study tables FILE|NAME", "which are not recorded there"])


def test_columns_that_only_some_runs_have_are_empty_in_the_others(copied, hpctrip):
    """The domain of a power trace, beside constant power."""
    lines = (
        "-o",
        "policy.k=2",
        "-o",
        "stop.max_rounds=1",
        "--sweep",
        "power.kind=trace,constant",
        "--out",
        copied / "out/mixed",
    )
    assert hpctrip("run", copied / "base.toml", *lines).code == 0
    (table,) = copied.glob("out/mixed/tiny-sweep_power.kind-*/sites.csv")
    sites = pd.read_csv(table, keep_default_na=False).groupby("identity")["trace_domain"]
    assert sorted(set(names) == {""} for _, names in sites) == [False, True]


def test_a_dry_run_reports_runs_wall_time_and_disk_and_makes_nothing(copied, study):
    before = state_of(copied)
    ended = study(copied, "-o", "seed=5,6", "--samples-per-second", "100", "--jobs", "2", do="plan")
    assert ended.code == 0, ended.err
    assert "4 runs: 2 finished, 2 planned" in ended.out
    assert "policy.k = 2: 1 missing" in ended.out and "as in finished runs" in ended.out
    assert "2 in parallel" in ended.out and "of results" in ended.out
    assert re.search(r"not counted: the start of \d+ runs?,", ended.out)
    changed = study(copied, "-o", "train.lr=0.02", "--samples-per-second", "100", "--jobs", "2", do="plan")
    # 66 samples a site, 2 sites, 6 rounds
    assert "policy.k = 2: 2 missing, 8 s each (at most, with max_rounds)" in changed.out
    assert state_of(copied) == before


def test_runs_made_elsewhere_are_taken_up_by_identity_and_drawn(made, study, tmp_path):
    copy_inputs(made.folder, tmp_path)
    imported = study(tmp_path, "--import", made.folder / "out/two/ledger.csv")
    assert imported.code == 0, imported.err
    assert "4 finished runs imported" in imported.out and " missing, " not in imported.out
    left_out = ["file", "file_state", "wall_s"]
    pd.testing.assert_frame_equal(
        ledger_of(tmp_path).drop(columns=left_out), ledger_of(made.folder).drop(columns=left_out)
    )
    for name in ("table.csv", "figures/sweep.csv"):
        assert (tmp_path / "out/two" / name).read_text() == (made.folder / "out/two" / name).read_text()
    onwards = tmp_path / "again"
    onwards.mkdir()
    copy_inputs(made.folder, onwards)
    assert study(onwards, tmp_path / "out/two/ledger.csv", do="import").code == 0


def test_an_imported_run_counts_where_the_one_made_here_was_interrupted(made, study, tmp_path, monkeypatch):
    copy_inputs(made.folder, tmp_path)
    assert study(tmp_path, "--import", made.folder / "out/two/ledger.csv").code == 0
    entry = read_studies(str(tmp_path / "study.toml"), tmp_path / "out")[0].entries[0]
    store, whole = RunStore(tmp_path / "out"), made.folder / f"out/runs/{entry.identity}.h5"
    shutil.copy(whole, store.results(entry.identity))
    half = open_run(whole)
    half = replace(half, meta=half.meta | {"status": "interrupted"})
    monkeypatch.setattr(store, "_rounds", lambda file: half)
    state = store.inspect(entry)
    assert state.imported and state.run.path == state.file == store.imported(entry.identity)


def test_a_run_that_ends_while_its_files_are_read_is_not_called_dead(made, tmp_path, monkeypatch):
    entry = read_studies(str(made.folder / "study.toml"), tmp_path / "out")[0].entries[0]
    store, whole = RunStore(tmp_path / "out"), open_run(made.folder / f"out/runs/{entry.identity}.h5")
    file = store.results(entry.identity)
    file.parent.mkdir(parents=True)
    lock = OutputLock(file)

    def read_while_it_ends(_):
        lock.release()
        return replace(whole, meta=whole.meta | {"status": "running", "stop_reason": ""})

    monkeypatch.setattr(store, "_rounds", read_while_it_ends)
    assert [store.inspect(entry).status for _ in range(2)] == ["running", "interrupted"]


def test_a_damaged_import_is_a_run_that_failed_and_ends_nothing(made, study, tmp_path):
    copy_inputs(made.folder, tmp_path)
    assert study(tmp_path, made.folder / "out/two/ledger.csv", do="import").code == 0
    entry = read_studies(str(tmp_path / "study.toml"), tmp_path / "out")[0].entries[0]
    file = RunStore(tmp_path / "out").imported(entry.identity)
    file.write_text("#{}\n" + file.read_text().partition("\n")[2])
    ended = study(tmp_path)
    assert ended.code == 1 and f"{NAMES[0]}: {file}: is damaged; remove it and import again" in ended.err
    assert "1 of 2" in ended.out and " missing, " not in ended.out
    assert statuses(study(tmp_path, do="status")) == dict.fromkeys(NAMES, "finished") | {NAMES[0]: "failed"}


def test_rows_without_a_curve_yet_are_left_out_and_counted(made, study, tmp_path):
    copy_inputs(made.folder, tmp_path)
    ledger = pd.read_csv(made.folder / "out/two/ledger.csv")
    curves = pd.read_csv(made.folder / "out/two/curves.csv")
    ledger.to_csv(tmp_path / "half.csv", index=False)
    curves[curves["identity"] != ledger["identity"][0]].to_csv(tmp_path / "half_curves.csv", index=False)
    imported = study(tmp_path, tmp_path / "half.csv", do="import")
    assert imported.code == 0, imported.err
    assert "3 finished runs imported; 1 have no curve yet" in imported.out


def test_rows_of_another_input_or_with_another_curve_are_refused(copied, made, study):
    ledger = made.folder / "out/two/ledger.csv"
    refused = study(copied, "-o", "train.lr=0.02", ledger, do="import")
    refused.check_refused(["none of its 4 finished rows is a run of this study"])
    curves = copied / "out/two/curves.csv"
    lines = curves.read_text().splitlines()
    curves.write_text("\n".join([lines[0], *lines[2:]]) + "\n")  # the first round of the first run is missing
    study(copied, copied / "out/two/ledger.csv", do="import").check_refused(
        ["ledger.csv, line 2: has", "import both files of one study"]
    )


@pytest.mark.parametrize(("column", "value"), [("rules", "1, train 2"), ("identity_version", "1")])
def test_rows_made_under_other_rules_are_left_out_and_the_report_names_them(copied, study, column, value):
    path = copied / "out/two/ledger.csv"
    ledger = pd.read_csv(path, dtype=str)
    ledger.loc[1:, column] = value
    ledger.loc[1:, "identity"] = "0" * 32  # which contains them
    ledger.to_csv(path, index=False)
    imported = study(copied, path, do="import")
    assert f"1 finished runs imported; 3 rows were skipped: {NAMES[1]} has {column} '{value}'" in imported.out


def test_the_rows_that_docs_quote_are_runs_of_their_study():
    """Fails where an identity changes by mistake: declare a new key `Added`, and raise `rules` where results change."""
    quoted = read_table(ROOT / "docs/results/league/ablation.csv")
    read = read_studies(str(ROOT / "inputs/studies/ablation.toml"), Path("results"), Changes(["seed=0"]))[0]
    identities = {entry.name: entry.identity for entry in read.entries}
    rows = dict(zip(quoted.columns["run"], quoted.columns["identity"], strict=True))
    assert len(rows) == 35 and {name: identities.get(name) for name in rows} == rows


def test_a_row_whose_accuracy_was_edited_is_refused(copied, study):
    path = copied / "out/two/ledger.csv"
    pd.read_csv(path).assign(accuracy=0.9).to_csv(path, index=False)
    imported = study(copied, path, do="import")
    imported.check_refused(["line 2: came to the accuracy '0.9', by its curve to", "import both files"])


def test_a_damaged_file_is_left_alone_and_reported_with_a_hint(copied, study):
    file = copied / "out" / ledger_of(copied)["file"][NAMES[0]]
    file.write_bytes(file.read_bytes()[:5000])
    ended = study(copied)
    assert ended.code == 1 and " missing, " not in ended.out
    assert f"{NAMES[0]}: {file}: is damaged" in ended.err
    assert "; remove it, and the run is made again" in ended.err
    Path(f"{file}.ckpt0").touch()  # a start would write the results anew from a whole one
    assert statuses(study(copied, do="status"))[NAMES[0]] == "interrupted"
    for path in (file, Path(f"{file}.ckpt0")):
        path.unlink()
    assert study(copied).code == 0


def test_a_file_of_another_input_in_the_place_of_a_run_is_no_evidence(copied, study):
    ledger = ledger_of(copied)
    first, second = (copied / "out" / ledger["file"][name] for name in NAMES[::2])
    first.write_bytes(second.read_bytes())
    listed = study(copied, do="status")
    assert statuses(listed)[NAMES[0]] == "failed"
    assert "is of another input (policy.k); remove it, and the run is made again" in listed.out


def test_a_run_from_before_a_key_was_added_counts_where_the_key_stays_at_its_default(made, monkeypatch):
    entry = read_studies(str(made.folder / "study.toml"), made.folder / "out")[0].entries[0]
    run = open_run(made.folder / "out" / ledger_of(made.folder)["file"][NAMES[0]])
    older = replace(run, input=copy.deepcopy(run.input))
    del older.input["network"]["far_distance_m"]
    assert differences(run, entry) == "" and differences(older, entry) == "network.far_distance_m"
    added = run_store.added_keys
    monkeypatch.setattr(run_store, "added_keys", lambda e: [*added(e), "network.far_distance_m"])
    assert differences(run, entry) == "" and differences(older, entry) == ""


def test_a_default_that_changes_makes_the_runs_under_it_stale(copied, study, monkeypatch):
    as_another_default = {"profiler": {"interval_s": 5.0}}  # a key that the study does not set
    monkeypatch.setattr(grid, "resolved", lambda table: deep(resolved(table), as_another_default))
    assert set(statuses(study(copied, do="status")).values()) == {"stale"}


def test_runs_of_a_policy_whose_rules_have_been_raised_since_are_stale(copied, study, monkeypatch):
    monkeypatch.setattr(POLICIES["random"], "rules", 7)
    assert set(statuses(study(copied, do="status")).values()) == {"finished"}
    monkeypatch.setattr(POLICIES["static"], "rules", 7)
    assert set(statuses(study(copied, do="status")).values()) == {"stale"}


def test_one_value_takes_the_place_of_an_axis(copied, study):
    one = study(copied, "-o", "policy.k=3", "-o", "seed=4", do="status")
    assert statuses(one) == {NAMES[2]: "finished"}


def test_without_slurm_a_submission_is_refused(copied, study, monkeypatch):
    monkeypatch.setenv("PATH", str(copied))
    study(copied, "-o", "seed=9", do="submit").check_refused(["study submit: there is no sbatch here"])
