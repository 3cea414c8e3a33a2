"""`hpctrip slurm` and `hpctrip inputs`: what is written, and what a written script runs. That needs no Slurm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_node import is_a_slurm_node

ROOT = Path(__file__).parents[1]
SAYS = '#!/bin/bash\nfor word; do [[ $word != -c ]] || exec echo 3; done\necho "$(basename "$0") $@"\n'
"""A program that says how it was called; asked to count ranks, it counts three."""
SUBMITTING = ["emnist_static_sweep", "policies"]
"""Scripts that are no jobs: they submit a study."""
NAMES = ["emnist_dynamic", *SUBMITTING, "requeue", "study"]


@pytest.fixture
def written(hpctrip, tmp_path):
    """`written(name, *options)`: the file of a batch script in a user's folder with inputs/, outside the checkout."""
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")

    def write(name, *options):
        ended = hpctrip("slurm", name, *options, "--to", tmp_path)
        assert ended.code == 0, ended.err
        return tmp_path / f"{name}.sh"

    return write


@pytest.fixture
def started(written, tmp_path):
    """`started(*options, **variables)`: how a job of three ranks with these settings starts hpctrip."""
    for name in ("mpirun", "apptainer"):
        (tmp_path / name).write_text(SAYS)
        (tmp_path / name).chmod(0o755)

    def run(*options, **variables):
        script = written("emnist_dynamic", *options)
        job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "SLURM_NTASKS": "3", "VIRTUAL_ENV": ""}
        path = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", str(script), "-o", "seed=3"],
            cwd=tmp_path,
            env={**os.environ, **job, **path, **variables},
            capture_output=True,
            text=True,
        )

    return run


RUNS = "-m hpctrip inputs/emnist_dynamic.toml --out results/emnist_dynamic_7.h5 -o seed=3"


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (["--launcher=mpirun"], "mpirun -n 3 python"),
        (["--launcher=mpirun --bind-to none -np {n}"], "mpirun --bind-to none -np 3 python"),
        (["--launcher=mpirun -np {n} nice {python} -u"], "mpirun -np 3 nice python -u"),
        (
            ["--launcher=mpirun", "--container=apptainer exec x.sif"],
            "mpirun -n 3 apptainer exec x.sif python",
        ),
        (
            ["--launcher=apptainer exec x.sif mpirun -n {n} {python}"],
            "apptainer exec x.sif mpirun -n 3 python",
        ),
    ],
)
def test_a_launcher_is_a_pattern_of_ranks_and_python(options, command, started):
    ended = started(*options)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"{command} {RUNS}"


def test_requeue_without_an_input_is_refused_where_it_would_run_the_demonstration(written, tmp_path):
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "hpctrip", "SLURM_NTASKS": "3"}
    ended = subprocess.run(
        ["bash", str(written("requeue")), "-o", "seed=3"],
        cwd=tmp_path,
        env={**os.environ, **job},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2 and "requeue.sh: name an input before -o, e.g." in ended.stderr


def test_modules_and_the_sites_own_file_come_first_and_the_environment_of_sbatch_wins(started, tmp_path):
    (tmp_path / "site.sh").write_text('echo "set up with $NOT_SET_ANYWHERE"\n')
    options = ["--launcher=mpirun", "--modules=openmpi cuda", f"--setup={tmp_path / 'site.sh'}"]
    module = {"BASH_FUNC_module%%": '() { echo "module $*"; }'}
    ended = started(*options, **module, HPCTRIP_LAUNCHER="mpirun -x A {python}")
    assert ended.stdout.splitlines()[:2] == ["module load openmpi cuda", "set up with "], ended.stderr
    assert ended.stdout.splitlines()[-1] == f"mpirun -x A python {RUNS}"


@pytest.mark.parametrize("name", NAMES)
def test_a_written_script_is_the_shipped_one_in_one_piece(name, written):
    text, shipped = written(name).read_text(), (ROOT / "slurm" / f"{name}.sh").read_text()
    library = (ROOT / "slurm" / "launch.sh").read_text()
    assert text.count(library) == (name not in SUBMITTING) and "source slurm/" not in text
    kept = [line for line in text.replace(library, "").splitlines() if f"{name}.sh" not in line]
    assert kept == [
        line for line in shipped.splitlines() if f"{name}.sh" not in line and "source" not in line
    ]


def test_options_of_sbatch_replace_the_scripts_own_or_are_added(written):
    options = [
        "--account=abc",
        "--partition=gpu,long",
        "--sbatch=--time=01:00:00",
        "--sbatch=--gpus-per-node=4",
    ]
    lines = written("emnist_dynamic", *options).read_text().splitlines()
    given = [line for line in lines if line.startswith("#SBATCH ")]
    for option in ("--account=abc", "--partition=gpu,long", "--time=01:00:00", "--gpus-per-node=4"):
        assert f"#SBATCH {option}" in given
    assert sum("--time" in line for line in given) == 1 and sum("--gpus=" in line for line in given) == 1


@pytest.mark.slurm
@pytest.mark.skipif(
    not is_a_slurm_node(), reason="no Slurm here with this machine as a node (see .ci/slurm_up)"
)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SUBMITTING])
def test_a_written_script_is_accepted_by_slurm(name, written, tmp_path):
    gpus = [] if name == "study" else ["--sbatch=--ntasks=5"]
    script = written(name, "--partition=ci", "--sbatch=--gpus=0", *gpus)
    tested = subprocess.run(["sbatch", "--test-only", script], cwd=tmp_path, capture_output=True, text=True)
    assert tested.returncode == 0 and "to start at" in tested.stderr, tested.stderr


def test_existing_files_are_not_overwritten(hpctrip, tmp_path):
    for command in (["slurm", "requeue"], ["inputs", "smoke"]):
        assert hpctrip(*command, "--to", tmp_path / "new").code == 0
        hpctrip(*command, "--to", tmp_path / "new").check_refused(["exists already"])


@pytest.mark.parametrize(("name", "needs"), [("emnist_dynamic", True), ("requeue", False), ("study", False)])
def test_inputs_are_missed_where_a_script_always_reads_one(name, needs, hpctrip, folder):
    assert ("inputs/" in hpctrip("slurm", name, "--to", folder).out) == needs


def test_all_scenarios_are_copied_and_one_is_printed(hpctrip, tmp_path):
    assert hpctrip("inputs", "--to", tmp_path).code == 0
    folders = [ROOT / "inputs", *(ROOT / "inputs" / name for name in ("cluster", "real", "worlds"))]
    shipped = [path for folder in folders for path in folder.glob("*.toml")]
    copied = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.toml")}
    assert copied == {path.relative_to(ROOT / "inputs") for path in shipped}
    assert hpctrip("inputs", "smoke").out == (ROOT / "inputs" / "smoke.toml").read_text()


@pytest.mark.parametrize(
    ("command", "fragments"),
    [
        (["inputs", "smok"], ["inputs smok: no such scenario; did you mean 'smoke'?"]),
        (["slurm", "requeu"], ["slurm requeu: no such script; did you mean 'requeue'?"]),
        (["slurm", "requeue", "--sbatch=-t 3"], ["--sbatch -t 3: no long option of sbatch"]),
        (["run", "inputs/smoke.toml"], ["no such file; use the scenario that comes with", "alone: smoke"]),
        (["check", "mine.toml"], ["mine.toml: no such file;", "a name that `hpctrip inputs` lists"]),
    ],
)
def test_an_unknown_name_is_reported_in_one_line_with_a_hint(
    command, fragments, hpctrip, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    hpctrip(*command).check_refused(fragments)


@pytest.mark.parametrize("name", SUBMITTING)
def test_a_script_that_submits_a_study_takes_no_settings(name, hpctrip):
    hpctrip("slurm", name, "--account=abc").check_refused([f"slurm {name}: is no job", "when you start it"])


@pytest.mark.parametrize("option", ["--account", "--setup", "--to"])
def test_a_setting_is_one_line_of_the_script(option, hpctrip, tmp_path, monkeypatch):
    """Else the rest of it would be lines of its own."""
    monkeypatch.chdir(tmp_path)
    ended = hpctrip("slurm", "requeue", option, "a\necho pwned")
    ended.check_refused(["slurm requeue: ", "a\\necho pwned", "holds control characters"])
    assert not list(tmp_path.iterdir())
