"""Output files of the commands: their names, never an input, and existing files only with --overwrite."""

from __future__ import annotations

import pytest

from hpctrip.cli.main import cli
from hpctrip.figures import FIGURES
from hpctrip.record.reader import open_runs

ROUND = ("-o", "stop.max_rounds=1", "-o", "checkpoint.enabled=false")


@pytest.fixture(scope="module")
def made(trained):
    return trained("stop.max_rounds=1").path


def test_a_results_file_must_end_in_h5_or_hdf5(hpctrip, tiny, made, folder):
    """Which names do is tested with `check_suffix`."""
    for name, *command in (
        ("run.txt", "run", tiny, *ROUND),
        ("run.H5", "run", tiny, *ROUND, "--resume"),
        ("run.h5.ckpt0", "resume", made, *ROUND),
        ("run.h5/", "cluster"),
    ):
        problem = f"{name}: does not end in .h5 or .hdf5"
        hpctrip(*command, "--out", name).check_refused([problem, "name the file so, e.g. NAME.h5"])
    hpctrip("merge", "run", made).check_refused(["does not end in .h5 or .hdf5"])
    assert not list(folder.iterdir())


def test_a_results_file_is_found_in_its_folder(hpctrip, tiny, folder):
    for name in ("a.h5", "new/b [1].hdf5", "-c*.h5"):
        assert hpctrip("run", tiny, *ROUND, f"--out={name}").code == 0
        assert hpctrip("show", "--status", "--", name).out == "finished\n"
    assert len(open_runs([folder])) == 3


@pytest.mark.parametrize("out", ["input.h5", "sites.h5", "link.h5"])
def test_an_input_is_never_overwritten(out, hpctrip, tiny, folder):
    (folder / "sites.h5").write_text("distance_m\n" + "5\n" * 10)
    table = "sites = {kind = 'csv', path = 'sites.h5'}"
    (folder / "input.h5").write_text(tiny.read_text().replace("sites.num_sites = 10", table))
    (folder / "link.h5").symlink_to("sites.h5")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = hpctrip("run", "input.h5", *ROUND, "--out", out, "--overwrite")
    refused.check_refused([f"{out}: is an input, which is never overwritten"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_merge_never_overwrites_its_inputs(hpctrip, made, folder):
    (folder / "link.h5").symlink_to(made)
    before = made.read_bytes()
    refused = hpctrip("merge", "link.h5", made, "--overwrite")
    refused.check_refused(["link.h5: is an input"])
    assert made.read_bytes() == before


def test_files_are_replaced_only_with_overwrite_and_otherwise_none_is_written(hpctrip, made, folder):
    for name, *command in (
        ("sites.csv", "export", made, "."),
        ("smoke.toml", "inputs", "smoke", "--to", "."),
        ("requeue.sh", "slurm", "requeue", "--to", "."),
        ("commands.md", "reference", "."),
    ):
        before = set(folder.iterdir())
        (folder / name).write_text("mine")
        hpctrip(*command).check_refused([f"{name}: exists already", "--overwrite"])
        assert (folder / name).read_text() == "mine" and {*folder.iterdir()} == before | {folder / name}
        assert hpctrip(*command, "--overwrite").code == 0 and (folder / name).read_text() != "mine"


def test_every_command_that_writes_files_has_the_option_overwrite(hpctrip):
    options = {name: [p for p in c.params if p.name == "overwrite"] for name, c in cli.commands.items()}
    assert {name for name, option in options.items() if option} == {
        *("run", "retime", "export", "merge", "reference", "inputs", "new", "slurm", "tune")
    }
    for name, plot in FIGURES.items():
        assert "overwrite" in [param.name for param in plot.command.params], name
