"""Studies as job arrays: what is submitted, and which run an index of a frozen list executes."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess

import pytest
import tomli_w
from small_study import BASE, STUDY, ledger_of

from hpctrip.runner.job_status import RunStatus
from hpctrip.studies.frozen import _input_of
from hpctrip.studies.grid import identity_of
from hpctrip.studies.run_store import RunStore
from hpctrip.studies.studies import Changes, read_studies, study_file

SBATCH = """#!/bin/sh
touch {folder}/submitted
[ $(wc -l < {folder}/submitted) -lt {most} ] || {{ echo "error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }}
echo "$@" >> {folder}/submitted
wc -l < {folder}/submitted | tr -d " "
"""
SQUEUE = "#!/bin/sh\ncat {folder}/queued"
SCONTROL = "#!/bin/sh\necho 'MaxArraySize            = {size}'\n"
ODD = ["1\u00a0GB", 'a "quoted" one', "東京", "x" * 80, "new\u2028line, k = 2"]
"""Labels with a no-break space, quotes, CJK, of the greatest length, with a line separator."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "base.toml").write_text(BASE.replace("max_rounds = 6", "max_rounds = 1"))
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def slurm(folder, monkeypatch):
    """`slurm(size=3, most=9)`: a Slurm that accepts arrays of `size` tasks, and `most` of them; returns a function that
    reads the arguments of every sbatch."""

    def install(size="3", most=9):
        (folder / "queued").write_text("1_0 1_1 1_2 2_0\n")
        for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL), ("squeue", SQUEUE)):
            (folder / name).write_text(text.format(folder=folder, size=size, most=most))
            (folder / name).chmod(0o755)
        if size is None:
            (folder / "scontrol").unlink()
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return lambda: (folder / "submitted").read_text().splitlines()

    return install


def list_of(folder):
    (file,) = (folder / "out/submitted").glob("*.jsonl")
    return file


@pytest.fixture
def job(hpctrip, monkeypatch):
    """`job(file, index, variable)`: execute a run of a list as the job of an array."""

    def run(file, index, variable="SLURM_ARRAY_TASK_ID", *options):
        with monkeypatch.context() as environment:
            environment.setenv(variable, str(index))
            return hpctrip("study", "job", file, *options)

    return run


def test_a_study_is_submitted_in_arrays_that_slurm_accepts_one_after_the_other(folder, study, slurm):
    submitted = slurm()
    resources = ["--ranks", "3", "--gpus", "2", "--time", "01:00:00", "--constraint", "a100"]
    site = ["--partition", "gpu", "--account", "abc", "--sbatch=--qos=long"]
    ended = study(folder, "--at-once", "2", *resources, *site, do="submit")
    assert ended.code == 0, ended.err
    assert "job 1, 2: 4 runs in 2 job arrays, 3 ranks, 2 GPUs each" in ended.out
    assert f"hpctrip study tables {folder}/study.toml --out {folder}/out\n" in ended.out
    file, script = list_of(folder), list_of(folder).with_suffix(".sh")
    assert submitted() == [
        f"--parsable --array=0-2%2 {script} {file}",
        f"--parsable --dependency=afterany:1 --array=0-0%2 {script} {file} --first 3",
    ]
    options = [line.split()[1] for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    wanted = [
        "--ntasks=3",
        "--gpus=2",
        "--time=01:00:00",
        "--constraint=a100",
        "--partition=gpu",
        "--account=abc",
    ]
    assert {*wanted, "--qos=long"} <= {*options} and len({o.partition("=")[0] for o in options}) == len(
        options
    )
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    (read,) = read_studies(str(folder / "study.toml"), folder / "out")
    assert [run["identity"] for run in runs] == [entry.identity for entry in read.entries]
    status = study(folder, do="status").out
    assert status.count("queued       policy.k = ") == 4 and "seed 5  submitted as 2_0\n" in status
    again = study(folder, do="submit").out
    assert again == "4 runs queued or running already\nnothing is left to submit\n" and len(submitted()) == 2


def test_a_task_that_was_cancelled_before_it_began_is_planned_again(folder, study, slurm):
    submitted = slurm("9")
    assert study(folder, do="submit").code == 0
    (folder / "queued").write_text("1_0 1_3 77\n")
    status = study(folder, do="status").out
    assert status.count("queued  ") == 2 and status.count("planned      policy.k = ") == 2
    assert "its job 1_1 has gone" in status and "its job 1_2 has gone" in status
    assert "2 runs queued or running already" in study(folder, do="submit").out
    assert "--array=0-1 " in submitted()[1]


def test_a_submission_that_was_killed_before_slurm_answered_is_made_again(folder, study, slurm, monkeypatch):
    submitted = slurm()
    with monkeypatch.context() as hanging:
        hanging.setattr(subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        study(folder, do="submit")
    assert "queued" not in study(folder, do="status").out
    (read,) = read_studies(str(folder / "study.toml"), folder / "out")
    read.runs.note(read.entries[0].identity, state=RunStatus.QUEUED, job="two-20261129")  # of a killed one
    assert "job 1, 2: 4 runs" in study(folder, do="submit").out and len(submitted()) == 2


def test_the_runs_of_a_list_share_the_store_beside_it_wherever_they_start(folder, study, job, tmp_path):
    assert study(folder, "--write", do="submit").code == 0
    with contextlib.chdir(tmp_path):
        assert job(list_of(folder), 0).code == 0
    assert any((folder / "out/store").rglob("*.npz")) or any((folder / "out/store").iterdir())


@pytest.mark.parametrize("size", [None, "0"])
def test_a_slurm_that_tells_no_size_or_accepts_no_arrays_still_gets_the_runs(size, folder, study, slurm):
    submitted = slurm(size)
    assert study(folder, do="submit").code == 0
    arrays = [line for line in submitted() if "--array" in line]
    if size is None:
        assert len(submitted()) == 1 and "--array=0-3 " in arrays[0]
    else:
        assert arrays == [] and [line.split(" --index ")[1] for line in submitted()] == [
            "0",
            "0 --first 1",
            "0 --first 2",
            "0 --first 3",
        ]


def test_where_slurm_refuses_the_second_array_the_first_is_named_with_the_command_for_the_rest(
    folder, study, slurm
):
    submitted = slurm(most=1)
    ended = study(folder, do="submit")
    ended.check_refused(["sbatch refuses 1 runs: error: QOSMaxSubmitJobPerUserLimit", "before: job 1"])
    rest = shlex.split(ended.err.split("when it accepts them: ")[1])
    slurm()
    subprocess.run([folder / rest[0], *rest[1:]], check=True)
    assert submitted()[1].endswith("--array=0-0 " + " ".join(rest[2:])) and "--first 3" in submitted()[1]
    assert study(folder, do="status").out.count("planned  ") == 1


def test_where_slurm_knows_no_gpus_the_way_out_is_to_ask_for_none(folder, study, slurm):
    slurm()
    (folder / "sbatch").write_text(
        "#!/bin/sh\necho 'error: Invalid generic resource (gres) specification' >&2\nexit 1\n"
    )
    study(folder, "--gpus", "2", do="submit").check_refused(
        ["(gres)", "submit with --gpus 0; when it accepts"]
    )


def test_an_index_executes_its_run_whatever_its_label_though_the_study_has_changed(folder, study, job):
    variants = ", ".join(
        f"{{label = {json.dumps(label)}, train.lr = 0.0{n}}}" for n, label in enumerate(ODD, 1)
    )
    axis = f'[[axis]]\nname = "size"\nvariants = [{variants}]\n'
    (folder / "study.toml").write_text(
        f'name = "two"\ninputs = ["base.toml"]\nseeds = [1]\ncommon.policy.k = 2\n{axis}'
    )
    assert study(folder, "--write", do="submit").code == 0
    entries = read_studies(str(folder / "study.toml"), folder / "out")[0].entries
    file = list_of(folder)
    (folder / "study.toml").write_text(STUDY)
    for number in (0, 4):
        ended = job(file, number)
        assert ended.code == 0 and f"run {number} of 5: " in ended.out, ended.err
    store = RunStore(folder / "out")
    made = [entry.identity for entry in entries if store.inspect(entry).finished]
    assert made == [entries[0].identity, entries[4].identity]
    job(file, 5).check_refused([f"run 5: {file} has 5 runs; 0 to 4"])
    job(file, 1, "SLURM_ARRAY_TASK_ID", "--first", "4").check_refused(["run 5: "])


@pytest.mark.parametrize(
    ("variable", "index"),
    [("PBS_ARRAY_INDEX", 2), ("LSB_JOBINDEX", 3), ("JOB_COMPLETION_INDEX", 2)],
)
def test_other_schedulers_work_by_the_same_list(variable, index, folder, study, job):
    assert study(folder, "--write", do="submit").code == 0
    ended = job(list_of(folder), index, variable)
    assert ended.code == 0 and "run 2 of 4: policy.k = 3, seed 4" in ended.out, ended.err
    assert "finished     policy.k = 3, seed 4" in study(folder, do="status").out
    again = job(list_of(folder), index, variable)
    assert again.code == 0 and "is finished already" in again.out


def test_a_run_on_several_nodes_takes_them_whole(folder, study):
    for words, lines in {
        ("--ranks", 41, "--gpus", 40, "--nodes", 10): "nodes=10 exclusive distribution=cyclic mem=0",
        ("--ranks", 5): "nodes=1",
    }.items():
        assert study(folder, "--write", *words, do="submit").code == 0
        script = max(
            (folder / "out/submitted").glob("*.sh"), key=lambda file: file.stat().st_mtime_ns
        ).read_text()
        given = re.findall(r"^#SBATCH --((?:nodes|exclusive|distribution|mem)\S*)", script, re.MULTILINE)
        assert sorted(given) == sorted(lines.split())


def test_an_index_that_is_none_is_refused(folder, study, job, hpctrip):
    study(folder, "--write", do="submit")
    hpctrip("study", "job", list_of(folder)).check_refused(["no array index is set", "--index N"])
    job(list_of(folder), "0", "LSB_JOBINDEX").check_refused(["LSB_JOBINDEX=0: is no index", "from 1"])
    list_of(folder).write_text("{}\n")
    job(list_of(folder), "0").check_refused(["line 1 is not a run; submit the study again"])


def test_a_run_whose_plug_in_has_changed_since_is_not_made_under_its_old_identity(folder, study, job):
    (folder / "own.py").write_text("from hpctrip.api import CALLBACKS\n")
    study(folder, "--write", "--plugin", folder / "own.py", do="submit")
    (folder / "own.py").write_text("from hpctrip.api import POLICIES\n")
    job(list_of(folder), 0).check_refused(["its data or code has changed since it was submitted"])
    (folder / "own.py").write_text("from hpctrip.api import CALLBACKS\n")
    assert job(list_of(folder), 0).code == 0


def test_tables_after_an_array_train_nothing(folder, study, job, monkeypatch):
    study(folder, "--write", do="submit")
    job(list_of(folder), 0)
    monkeypatch.setattr("hpctrip.studies.execute.Executor.run", None)
    ended = study(folder, do="tables")
    assert ended.code == 0 and "Two cohort sizes" in ended.out, ended.err
    assert ledger_of(folder)["status"].tolist() == ["finished", *["planned"] * 3]


@pytest.mark.parametrize("name", ["smoke", "energy", "llm_policies", "fig13"])
def test_the_input_in_a_list_has_the_identity_of_its_run(name, tmp_path):
    (study,) = read_studies(study_file(name), tmp_path, Changes(["seed=0,7"]), checked=False)
    for entry in study.entries:
        assert identity_of(_input_of(tomli_w.dumps(entry.run_input.tables), study.runs)) == entry.identity


@pytest.mark.parametrize(
    ("option", "command"),
    [("--list", "status"), ("--dry-run", "plan"), ("--slurm", "submit"), ("--figure=x", "tables")],
)
def test_an_option_that_has_become_a_command_names_it(option, command, hpctrip):
    hpctrip("study", "smoke", option).check_refused(
        [option.partition("=")[0], f"hpctrip study {command} NAME"]
    )
