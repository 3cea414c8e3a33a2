"""Studies that come with hpctrip: small forms, variants that claims need, and the grid of the league."""

import tomllib
from pathlib import Path

import pytest

from hpctrip.base.errors import InputError
from hpctrip.studies.studies import Changes, read_studies, study_file

ROOT = Path(__file__).parents[2]
FOLDER = Path(study_file("paper")).parent
PAPER = tomllib.loads((FOLDER / "paper.toml").read_text())["studies"]
SHIPPED = [
    path for path in sorted(FOLDER.glob("*.toml")) if "_real" not in path.stem and path.stem != "paper"
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_study_on_embedded_data_has_a_small_form_with_few_seeds_three_in_the_paper(path, tmp_path):
    (study,) = read_studies(str(path), tmp_path, Changes(small=True))
    seeds = len({entry.seed for entry in study.entries})
    assert seeds in ({3} if path.name in PAPER else {1} if path.stem == "smoke" else {2, 3})
    assert all(entry.run_input.experiment.checked_num_sites() <= 40 for entry in study.entries)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*_real.toml")), ids=lambda path: path.stem)
def test_every_study_on_real_data_can_be_read_where_the_data_are(path, tmp_path, monkeypatch):
    (tmp_path / "data").symlink_to(ROOT.parent / "shared/data")
    (tmp_path / "inputs").symlink_to(ROOT / "inputs")
    monkeypatch.chdir(tmp_path)
    try:
        studies = read_studies(str(path), tmp_path, Changes(["seed=0"]), checked=False)
    except InputError as error:
        if any(text in str(error) for text in ("no such file", "there is no", "no file matches")):
            pytest.skip(f"no data: {error.faults[0]}")
        raise
    assert all(study.entries for study in studies)


def test_the_league_plays_every_scenario_with_every_policy_and_all_but_one_train_one_epoch(tmp_path):
    (study,) = read_studies(study_file("league"), tmp_path, Changes(["seed=0"]))
    grid = [(dict(entry.choices), entry.run_input.experiment) for entry in study.entries]
    scenarios, policies = ({choices[axis] for choices, _ in grid} for axis in ("scenario", "policy"))
    assert (len(scenarios), len(policies), len(grid)) == (13, 32, 13 * 32)
    assert sum(name.startswith("tuned-") for name in scenarios) == 6
    works = {c["policy"]: getattr(e.policy, "local_work", "fixed") for c, e in grid}
    assert [name for name, work in works.items() if work != "fixed"] == ["goodput-adaptive"]
    assert {e.train.local_epochs for _, e in grid} == {1} and {e.checked_num_sites() for _, e in grid} == {
        100
    }
    natural = {c["scenario"]: e.workload.kind for c, e in grid if e.partition.kind == "natural"}
    assert natural == {"writers-80": "femnist"}


def test_the_small_league_has_every_kind_of_policy_that_it_names_and_is_a_tenth_of_the_full_one(tmp_path):
    (study,) = read_studies(study_file("league"), tmp_path, Changes(small=True))
    grid = [(dict(entry.choices), entry.run_input.experiment) for entry in study.entries]
    scenarios, policies = ({choices[axis] for choices, _ in grid} for axis in ("scenario", "policy"))
    assert (len(scenarios), len(policies), len(grid)) == (7, 9, 7 * 9 * 2)
    assert all(name.endswith("-80") for name in scenarios)
    sizes = {getattr(e.policy, "k", None) or 0 for _, e in grid}
    assert max(sizes) == 14 and {e.checked_num_sites() for _, e in grid} == {40}


def test_the_league_on_measured_power_is_the_league_in_all_but_the_power_of_three():
    league, real = (tomllib.loads(Path(study_file(name)).read_text()) for name in ("league", "league_real"))
    (scenarios, policies), (played, same_policies) = league.pop("axis"), real.pop("axis")
    assert same_policies == policies
    twins = zip(scenarios["variants"], played["variants"], strict=True)
    other = [(of_league, own) for of_league, own in twins if own != of_league]
    assert len(other) == 3
    for of_league, own in other:
        assert own.pop("inputs") == ["../real/power.toml"] and of_league.pop("power") == {"kind": "trace"}
        assert own.pop("label") == of_league.pop("label").replace("-traces-", "-real-")
        assert own == of_league
    assert all(real[table] == league[table] for table in league.keys() - {"name", "title"})


def test_the_ablation_is_of_the_leagues_scenarios():
    league, ablation = (tomllib.loads(Path(study_file(name)).read_text()) for name in ("league", "ablation"))
    assert all(ablation[table] == league[table] for table in ("common", "small"))
    (scenarios, policies), (own, without) = league["axis"], ablation["axis"]
    for variant in scenarios["variants"] + own["variants"]:
        variant.pop("small", None)
    assert all(variant in scenarios["variants"] for variant in own["variants"])
    shared = [variant["label"] for variant in without["variants"] if variant in policies["variants"]]
    assert shared == ["PowerTrip", "goodput"]
