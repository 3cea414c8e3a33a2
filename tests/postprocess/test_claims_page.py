"""The script claims.py: the page of the paper's claims, from the tables of studies."""

import json
import shutil

import claims
import pandas as pd
import pytest
from paper.claims import CLAIMS
from paper.page import CONSTANTS
from test_claims import seeds

from hpctrip.cli.keys_reference import sections
from hpctrip.runner.experiment import Experiment
from hpctrip.studies.studies import Changes, read_studies, study_file
from hpctrip.studies.study import as_in_study

HOURS = {"PowerTrip": 1.0, "static optimal": 2.0, "random": 3.0}


def finish(entry, folder, hours, synthetic="data"):
    """Write the file of an imported run that took these hours to reach 45 %."""
    end_s = 3600 * hours * (1 + entry.seed / 100)
    row = {"rounds": "2", "clock_s": str(end_s), "digest": "0" * 16, "wall_s": "1.0", "synthetic": synthetic}
    row |= {"made_with": "hpctrip", "reason": "target accuracy 0.45 reached"}
    curve = f"round,clock_s,accuracy,num_sites\n1,{end_s / 2},0.2,10\n2,{end_s},0.5,20\n"
    (folder / "runs").mkdir(exist_ok=True)
    (folder / "runs" / f"{entry.identity}.csv").write_text(f"#{json.dumps(row)}\n{curve}")


@pytest.fixture(scope="module")
def concluded(tmp_path_factory):
    """Folder with the tables of the small Fig 9, of which runs of three policies are finished."""
    folder = tmp_path_factory.mktemp("studies")
    (study,) = read_studies(study_file("fig09"), folder, Changes(small=True))
    for entry in study.entries:
        if entry.variant in HOURS:
            finish(entry, folder, HOURS[entry.variant])
    study.conclude()
    shutil.rmtree(folder / "runs")  # the tables are enough
    return folder


@pytest.fixture
def folder(concluded, tmp_path):
    """A copy of it, for tests that write."""
    return shutil.copytree(concluded, tmp_path / "copy")


@pytest.fixture
def page(script):
    """Run the script; returns what it prints."""

    def run(*words):
        ended = script(claims.main, *words)
        assert ended.code == 0, ended.err
        return ended.out

    return run


def test_every_claim_has_a_row_and_what_was_not_run_says_so(page, folder):
    printed = page(folder / "fig09-small").splitlines()
    assert {line.split("  ")[0] for line in printed if "Fig" in line} == {"met", "not examined"}
    assert any(
        line.startswith("met           Fig 9: PowerTrip takes less time than random (paper: 56%")
        for line in printed
    )
    assert "              67% less time: 0.333 (0.333 to 0.333) times as long" in printed
    assert any(line.startswith("met           Fig 10: PowerTrip starts with few sites") for line in printed)
    assert "study fig08 was not run" in " ".join(printed)
    counted = [claim for claim in CLAIMS if not claim.caveat]
    assert printed[-2].startswith(f"{len(counted)} claims: 2 met, ")
    assert " not examined. Apart, by their caveat: weak: 3 met, " in printed[-2]
    assert printed[-2].endswith(". At a false discovery rate of 5 %, 5 of 5 decided verdicts hold")
    assert printed[-1] == f"page: {folder}/fig09-small/claims.md"


def test_a_preface_stands_under_the_title_as_it_was_written(page, folder):
    (folder / "mine.md").write_text("Made on *real* images, <1 GB.\n\nTwo paragraphs.\n\n")
    page(folder, "--preface", folder / "mine.md", "--to", folder)
    before, _, after = (
        (folder / "claims.md").read_text().partition("\n\nMade on *real* images, <1 GB.\n\nTwo")
    )
    assert before == "# The paper's claims, checked" and "\n\n## Claim by claim\n" in after
    earlier = (folder / "claims.md").rename(folder / "earlier.md")
    page(folder, "--preface", earlier, "--to", folder)
    assert (folder / "claims.md").read_text().splitlines()[:4] == earlier.read_text().splitlines()[:4]
    assert (folder / "claims.md").read_text().count("Two paragraphs.") == 1


def test_the_pages_say_what_was_in_force_and_how_to_repeat_it_and_carry_the_figures(page, folder):
    (folder / "fig09-small/figures/mine.png").write_bytes(b"\x89PNG of another program")
    page(folder, "--to", folder / "page")
    text = (folder / "page/claims.md").read_text()
    (fact,) = [line for line in text.splitlines() if "in all studies: " in line]
    assert "partition.alpha = 0.3" in fact and "timing.clock = straggler" in fact
    assert "timing.seconds_per_sample = 0.06" in fact
    assert "* 9 of 21 runs finished\n* synthetic data\n" in text
    assert "* repeat this page: python " in text and "### Fig. 9" in text
    assert "![fig09-small policies](claims/fig09-small_policies.png)" in text and "_mine" not in text
    policies = (folder / "fig09-small/figures/policies.png").read_bytes()
    assert (folder / "page/claims/fig09-small_policies.png").read_bytes() == policies


def test_what_all_studies_share_is_said_once_and_what_one_has_of_its_own_there(page, tmp_path):
    (tmp_path / "slow.toml").write_text("train.lr = 0.02\n")
    included = [str(study_file(name)) for name in ("fig09", "fig12")]
    (tmp_path / "two.toml").write_text(f'name = "two"\nstudies = {included}\noverlays = ["slow.toml"]\n')
    for study in read_studies(str(tmp_path / "two.toml"), tmp_path, Changes(["seed=0,1"])):
        for entry in study.entries:
            if entry.variant in ("PowerTrip", "random"):
                finish(entry, tmp_path, 1, synthetic="power" if entry.variant == "random" else "")
        study.conclude()
    page(tmp_path / "two", "--to", tmp_path)
    shared, fig09, fig12 = ((tmp_path / "claims.md").read_text().partition("## What was run")[2]).split("###")
    assert "train.lr = 0.02" in shared and "train.lr" not in fig09 + fig12
    assert "* power.path = synthetic\n" in fig12 and "power.path" not in shared + fig09
    facts = (
        "* 4 of 14 runs finished\n* config layers over its inputs: slow.toml\n* synthetic power (random)\n"
    )
    assert facts in fig09 and facts in fig12


def test_other_programs_get_one_object_a_claim(page, folder):
    objects = json.loads(page(folder, "--format", "json"))
    (random,) = [claim for claim in objects if claim["claim"] == "PowerTrip takes less time than random"]
    assert random["ordering"] == "met" and random["seeds"] == 3 and random["study"] == "fig09"


@pytest.mark.parametrize(
    ("only", "figures", "num_claims"),
    [
        ("fig 1", set(), 0),
        ("Fig. 10", {"Fig 10"}, 3),
        ("fig 10", {"Fig 10"}, 3),
        ("less time than RANDOM", {"Fig 9"}, 1),
    ],
)
def test_one_figure_or_claim_can_be_chosen_and_writes_no_page(
    only, figures, num_claims, page, script, folder
):
    """The verdict at a false discovery rate stays the one among all claims."""
    if not num_claims:
        ended = script(claims.main, folder / "fig09-small", "--only", only)
        assert ended.code == 2 and "--only fig 1: no claim has such a figure" in ended.err
        return
    objects = json.loads(page(folder, "--only", only, "--format", "json"))
    everything = json.loads(page(folder, "--format", "json", "--to", folder / "page"))
    assert len(objects) == num_claims and {claim["figure"] for claim in objects} == figures
    assert all(claim in everything for claim in objects)
    assert f"{figures.pop()}: " in page(folder, "--only", only) and not (folder / "claims.md").exists()


def test_three_seeds_that_decide_nothing_say_what_would(page, concluded, tmp_path):
    folder = shutil.copytree(concluded, tmp_path / "close") / "fig09-small"
    runs = pd.read_csv(folder / "runs.csv")
    curves = pd.read_csv(folder / "curves.csv")
    powertrip = runs[runs["variant"] == "PowerTrip"]
    for seed, factor in {0: 0.5, 1: 3.0, 2: 4.0}.items():
        identity = powertrip.loc[powertrip["seed"] == seed, "identity"].item()
        runs.loc[runs["identity"] == identity, "time_to_accuracy_s"] *= factor
        curves.loc[curves["identity"] == identity, "clock_s"] *= factor
    runs.to_csv(folder / "runs.csv", index=False)
    curves.to_csv(folder / "curves.csv", index=False)
    lines = page(folder, "--only", "less time than random").splitlines()
    assert lines[0].startswith("undecided ")
    assert (
        lines[-1].strip()
        == "3 seeds decide only large differences; for more, repeat the study fig09 with -o seed=0..9"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["typo"], "typo: no such folder"),
        (["empty"], "empty: holds no study that has ended (no runs.csv)"),
        (["fig09-small", "again"], "fig09-small: is one of two studies 'fig09'"),
        (["other"], "other: no claim is about such a study; name some of design, fig06, fig07_final"),
        (["fig09-small", "--preface", "none.md"], "none.md: no such file"),
        (["fig09-small", "--to", "a_file"], "a_file: is not a folder"),
    ],
)
def test_what_cannot_be_is_one_line_and_no_page(words, message, script, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    (folder / "a_file").touch()
    shutil.copytree(folder / "fig09-small", folder / "again")
    shutil.copytree(folder / "fig09-small", folder / "other")
    table = folder / "other/runs.csv"
    table.write_text(table.read_text().replace("\nfig09,", "\nmine,"))
    ended = script(claims.main, *words)
    assert ended.code == 2 and message in ended.err and len(ended.err.splitlines()) == 1
    assert not list(folder.rglob("claims.md"))


def test_the_constants_that_are_told_are_keys_of_the_input():
    keys = {f"{section.table}.{key.name}" for section in sections(Experiment) for key in section.keys}
    kinds = {f"{section.table}.kind" for section in sections(Experiment) if section.kind}
    assert set(CONSTANTS) <= keys | kinds


@pytest.mark.parametrize("small", [False, True], ids=["in full", "small"])
def test_claims_ask_for_variants_that_their_studies_have(small, tmp_path):
    studies = read_studies(study_file("paper"), tmp_path, Changes(["seed=0"], small=small))
    evidence = {
        study.file.name: {
            entry.variant: [as_in_study(run, entry) for run in seeds(1, 1.1)] for entry in study.entries
        }
        for study in studies
    }
    elsewhere = ("production power", "renewable share")  # studies of real data alone
    findings = [claim.finding(evidence).ours for claim in CLAIMS if not claim.figure.endswith(elsewhere)]
    assert [text for text in findings if "no finished run of" in text or "was not run" in text] == []
