"""Folders of studies with unexpected files, folders or links: one line of error, and nothing is overwritten."""

from __future__ import annotations

import pytest
from small_study import BASE, STUDY


def a_file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def a_loop(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path)


@pytest.fixture
def folder(tmp_path):
    """Folder with a study that was never executed."""
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.parametrize("do", ["run", "status"])
@pytest.mark.parametrize("odd", ["out", "out/runs", "out/logs", "out/store"])
def test_a_file_in_place_of_a_folder_of_all_studies(odd, do, folder, study):
    a_file(folder / odd)
    study(folder, do=do).check_refused([f"{folder / odd}: is not a folder"])
    assert (folder / odd).read_text() == "mine"


@pytest.mark.parametrize("out", ["base.toml/x", "/dev/null"])
def test_a_folder_that_cannot_be(out, folder, hpctrip):
    ended = hpctrip("study", folder / "study.toml", "--out", folder / out)
    ended.check_refused([f"{folder / out}".removesuffix("/x"), "is not a folder"])


@pytest.mark.parametrize("do", ["run", "status"])
def test_training_data_that_has_gone_is_named(do, folder, study):
    gone = folder / "gone"
    ended = study(folder, "-o", "workload.kind=emnist", "-o", f"workload.data={gone}", do=do)
    ended.check_refused([f"{gone}"])


def test_a_file_in_place_of_the_folder_of_a_study(folder, study):
    a_file(folder / "out/two")
    study(folder).check_refused([f"{folder / 'out/two'}: is not a folder"])


def test_a_loop_of_links_in_place_of_results_is_a_run_that_failed(copied, study):
    path = next((copied / "out/runs").glob("*.h5"))
    path.unlink()
    a_loop(path)
    ended = study(copied, do="status")
    assert ended.code == 0 and "4 runs: 1 failed, 3 finished" in ended.out, ended.err
    assert f"{path.name}: cannot be read (Too many levels of symbolic links); remove it" in ended.out


def test_a_folder_in_place_of_why_a_run_failed(copied, study):
    path = next((copied / "out/runs").glob("*.h5"))
    path.unlink()
    status = copied / "out/logs" / f"{path.stem}.json"
    status.mkdir(parents=True)
    ended = study(copied)
    assert len(ended.report) == 1 and f"{status}: cannot be written: " in ended.report[0], ended.err


@pytest.mark.parametrize("target", ["[1]", "{a = 1}", "1979-05-27", f"1{'0' * 400}", "true", "nan"])
def test_an_option_of_a_figure_that_is_no_number(target, folder, study):
    text = STUDY.replace("target = 0.01", f"target = {target}")
    (folder / "study.toml").write_text(text)
    study(folder).check_refused(["figure.0: target: "])


def test_an_option_of_a_figure_is_taken_as_its_command_takes_it(folder, study):
    """A text is converted to the number that the figure expects."""
    from hpctrip.studies.file import Picture

    picture = Picture.model_validate({"name": "policies", "target": "0.45", "reference": 3})
    assert picture.options() == {"target": 0.45, "reference": "3"}


@pytest.mark.parametrize(
    ("name", "value"), [("PMI_SIZE", "x"), ("PMI_RANK", "-1"), ("SLURM_PROCID", ""), ("PMI_SIZE", "9" * 400)]
)
def test_a_number_of_ranks_that_is_none(name, value, folder, study, monkeypatch):
    for variable in ("PMI_SIZE", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    study(folder).check_refused([f"{name}={value[:20]}", "is not a number of ranks"])
