"""The command `claims`: the page of the paper's claims, from imported runs."""

import json
import os

import pytest
from click.testing import CliRunner

from hpctrip.base.errors import InputError
from hpctrip.cli import claims as command
from hpctrip.cli.keys_reference import sections
from hpctrip.runner.experiment import Experiment
from hpctrip.studies.claims import gather
from hpctrip.studies.studies import StudyOptions, read_studies, study_file

PNG = b"\x89PNG\r\n\x1a\n and so on"
HOURS = {"PowerTrip": 1.0, "static optimal": 2.0, "random": 3.0}


def finish(entry, folder, hours, synthetic="data"):
    """Write the file of an imported run that took these hours to reach 45 %."""
    end_s = 3600 * hours * (1 + entry.seed / 100)
    row = {"rounds": "2", "clock_s": str(end_s), "digest": "0" * 16, "wall_s": "1.0", "synthetic": synthetic}
    row |= {"made_with": "hpctrip", "reason": "target accuracy 0.45 reached"}
    curve = f"round,clock_s,accuracy,num_sites\n1,{end_s / 2},0.2,10\n2,{end_s},0.5,20\n"
    (folder / "runs").mkdir(exist_ok=True)
    (folder / "runs" / f"{entry.identity}.csv").write_text(f"#{json.dumps(row)}\n{curve}")


@pytest.fixture
def folder(tmp_path):
    """Folder of studies, with finished runs of three policies of the small Fig 9."""
    (study,) = read_studies(study_file("fig09"), StudyOptions(tmp_path, small=True))
    for entry in study.ledger.entries:
        if entry.variant in HOURS:
            finish(entry, tmp_path, HOURS[entry.variant])
    (tmp_path / "fig09-small").mkdir()
    (tmp_path / "fig09-small" / "policies.png").write_bytes(PNG)
    return tmp_path


@pytest.fixture
def claims():
    """`claims(*arguments)`: run the command; returns its output."""

    def run(*words, study="fig09"):
        arguments = [*map(str, words), "--study", study]
        ended = CliRunner().invoke(command.claims, arguments, catch_exceptions=False)
        assert ended.exit_code == 0
        return ended.output

    return run


def test_every_claim_has_a_row_and_what_was_not_run_says_so(folder, claims):
    printed = claims(folder, "--small").splitlines()
    verdicts = dict.fromkeys(line.split("  ")[0] for line in printed if "Fig" in line)
    assert set(verdicts) == {"met", "not run"}
    assert any(
        line.startswith("met        Fig 9: PowerTrip takes less time than random (paper: 56%")
        for line in printed
    )
    assert "           67% less time: 0.333 (0.333 to 0.333) times as long" in printed
    assert any(line.startswith("met        Fig 10: PowerTrip starts with few sites") for line in printed)
    assert "study fig08 was not run" in " ".join(printed)
    assert printed[-2:] == [f"page: {folder}/claims.md", f"page: {folder}/claims.html"]


def test_a_preface_stands_under_the_title_as_it_was_written(folder, claims):
    (folder / "mine.md").write_text("Made on *real* images, <1 GB.\n\nTwo paragraphs.\n\n")
    claims(folder, "--small", "--preface", folder / "mine.md")
    page = (folder / "claims.md").read_text()
    before, _, after = page.partition("\n\nMade on *real* images, <1 GB.\n\nTwo paragraphs.\n\n")
    assert before == "# The paper's claims, checked" and after.startswith("## Claim by claim\n")
    assert "Made on *real* images, &lt;1 GB.\n\nTwo" in (folder / "claims.html").read_text()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "no such file"), (b"\xff", "not a UTF-8 text")],
    ids=["absent", "no text"],
)
def test_a_preface_that_cannot_be_read_is_one_line_and_no_page(content, problem, folder):
    if content is not None:
        (folder / "mine.md").write_bytes(content)
    arguments = [str(folder), "--small", "--study", "fig09", "--preface", str(folder / "mine.md")]
    with pytest.raises(InputError, match=problem):
        CliRunner().invoke(command.claims, arguments, catch_exceptions=False, standalone_mode=False)
    assert not (folder / "claims.md").exists()


def test_the_pages_say_what_was_in_force_and_how_to_repeat_it(folder, claims):
    claims(folder, "--small", "--to", folder / "page")
    page = (folder / "page" / "claims.md").read_text()
    (fact,) = [line for line in page.splitlines() if "in all studies: " in line]
    assert "partition.alpha = 0.3" in fact and "timing.clock = straggler" in fact
    assert "timing.seconds_per_sample = 0.06" in fact
    assert "* 9 of 21 runs finished\n* synthetic data\n" in page
    assert f"python -m hpctrip study fig09 --small --out {folder}" in page
    assert f"python -m hpctrip claims {folder} --study fig09 --small" in page
    assert "![fig09-small policies](claims/fig09-small_policies.png)" in page
    assert (folder / "page" / "claims" / "fig09-small_policies.png").read_bytes() == PNG
    assert "data:image/png;base64,iVBORw0KGgo" in (folder / "page" / "claims.html").read_text()


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (lambda path, secret: path.write_bytes(secret.read_bytes()), "is not a PNG picture"),
        (lambda path, secret: (os.mkfifo(path), os.open(path, os.O_RDWR)), "is no regular file"),
    ],
    ids=["text", "pipe"],
)
def test_the_page_carries_pictures_of_the_folder_itself_and_nothing_else(
    folder, hpctrip, tmp_path, put, message
):
    (tmp_path / "secret.txt").write_text("password")
    picture = folder / "fig09-small" / "policies.png"
    picture.unlink()
    put(picture, tmp_path / "secret.txt")
    hpctrip("claims", folder, "--small", "--study", "fig09").check_refused([f"{picture.name}: {message}"])
    assert not (folder / "claims").exists() and not (folder / "claims.html").exists()


def test_a_picture_of_other_runs_or_of_no_figure_of_the_study_is_left_out(folder, claims):
    (folder / "fig09-small" / "mine.png").write_bytes(PNG)
    claims(folder, "--small")
    assert [file.name for file in (folder / "claims").iterdir()] == ["fig09-small_policies.png"]
    claims(folder, "--small", "-o", "train.lr=0.5", "--to", folder / "other")
    assert "0 of 21 runs finished" in (folder / "other" / "claims.md").read_text()
    assert not (folder / "other" / "claims").exists()


def test_a_folder_that_is_not_there_is_not_made(tmp_path, hpctrip):
    hpctrip("claims", tmp_path / "typo").check_refused(["typo: no such folder"])
    assert not (tmp_path / "typo").exists()


def test_a_study_that_no_claim_speaks_of_is_refused(folder, hpctrip):
    hpctrip("claims", folder, "--small", "--study", "smoke").check_refused(
        ["smoke: includes no study that a claim speaks of; include some of fig06, fig08"]
    )


def test_two_studies_of_one_name_are_refused(folder, hpctrip):
    inside = folder / "inside.toml"
    inside.write_text(f'name = "inside"\noverlays = ["over.toml"]\nstudies = ["{study_file("fig09")}"]\n')
    (folder / "over.toml").write_text("train.lr = 0.5\n")
    both = folder / "both.toml"
    both.write_text(f'name = "both"\nstudies = ["{study_file("fig09")}", "inside.toml"]\n')
    hpctrip("claims", folder, "--small", "--study", both).check_refused(
        ["both.toml: includes two studies 'fig09'"]
    )


def test_the_commands_leave_out_the_default_folder(folder, claims, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    (home / "results").mkdir()
    (home / "results" / "studies").symlink_to(folder)
    monkeypatch.chdir(home)
    claims("--small")
    page = (folder / "claims.md").read_text()
    assert "study fig09 --small\n" in page and "claims --study fig09 --small\n" in page


def test_what_all_studies_share_is_said_once_and_what_one_has_of_its_own_there(tmp_path, claims):
    (tmp_path / "slow.toml").write_text("train.lr = 0.02\n")
    included = [str(study_file(name)) for name in ("fig09", "fig12")]
    (tmp_path / "two.toml").write_text(f'name = "two"\nstudies = {included}\noverlays = ["slow.toml"]\n')
    for study in read_studies(str(tmp_path / "two.toml"), StudyOptions(tmp_path)):
        for entry in study.ledger.entries:
            if entry.variant in ("PowerTrip", "random"):
                finish(entry, tmp_path, 1, synthetic="power" if entry.variant == "random" else "")
    claims(tmp_path, study=str(tmp_path / "two.toml"))
    page = (tmp_path / "claims.md").read_text()
    shared, fig09, fig12 = (page.partition("## What was run")[2]).split("###")
    assert "train.lr = 0.02" in shared and "train.lr" not in fig09 + fig12
    assert "* power.path = synthetic\n" in fig12 and "power.path" not in shared + fig09
    for part in (fig09, fig12):
        assert (
            "* 20 of 70 runs finished\n* laid over its inputs: slow.toml\n* synthetic power (random)\n"
            in part
        )


def test_other_programs_get_one_object_a_claim(folder, claims):
    claim_objects = json.loads(claims(folder, "--small", "--format", "json"))
    (random,) = [
        claim for claim in claim_objects if claim["claim"] == "PowerTrip takes less time than random"
    ]
    assert random["ordering"] == "met" and random["seeds"] == 3 and random["study"] == "fig09"


def test_runs_of_another_input_are_not_taken_for_these(folder, claims):
    printed = claims(folder, "--small", "-o", "sites.num_sites=30")
    assert printed.splitlines()[-3] == "29 claims: 29 not run"


def test_the_constants_that_are_told_are_keys_of_the_input():
    keys = {f"{section.table}.{key.name}" for section in sections(Experiment) for key in section.keys}
    kinds = {f"{section.table}.kind" for section in sections(Experiment) if section.kind}
    assert set(gather.CONSTANTS) <= keys | kinds
