"""The commands of `hpctrip`, called as on the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import hpctrip as package
from hpctrip.cli.main import cli
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.sim.policies import POLICIES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run_file(trained):
    return trained("stop.max_rounds=2").path


def test_help_names_every_command_and_every_command_has_help(hpctrip):
    shown = hpctrip("--help")
    assert shown.code == 0 and hpctrip("-h") == shown
    for command in cli.commands.keys() - {"reference"}:  # it is for the pages of this project
        assert re.search(rf"^  {command} ", shown.out, re.MULTILINE)
        ended = hpctrip(command, "--help")
        assert ended.code == 0 and re.match(rf"Usage: .*hpctrip {command} ", ended.out)


@pytest.mark.parametrize("command", ["show", "keys"])
def test_output_to_a_full_disk_is_one_line(command, run_file):
    """The one writes more than a buffer holds, the other does not, or flushes it."""
    words = [sys.executable, "-m", "hpctrip", command, *([str(run_file)] if command == "show" else [])]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert ended.returncode == 1
        assert ended.stderr.splitlines() == [
            "hpctrip: the output: cannot be written: No space left on device; "
            "free some space or choose another place"
        ]
        refused = subprocess.run([*words[:3], "show", "none.h5"], stderr=full, cwd=ROOT)
    assert refused.returncode == 2


def test_version(hpctrip):
    assert hpctrip("--version").out.strip() == f"hpctrip, version {package.__version__}"


def test_the_keys_of_a_table_list_what_is_registered(hpctrip):
    for table, registry in (("policy", POLICIES), ("workload", WORKLOADS)):
        listed = hpctrip("keys", table).out
        assert all(f"\n## `{kind}`\n" in listed for kind in registry)


LINES = "sites.num_sites=6 workload.train_samples=60 workload.test_samples=20 stop.max_rounds=1"


@pytest.mark.parametrize(
    "kind, command",
    [
        ("input", ["run", "mine.toml"]),
        ("study", ["study", "mine.toml", "--jobs", "1", "-o", "seed=0"]),
        ("policy", ["run", "--plugin", "mine.py", "-o", "policy.kind=mine", "-o", "policy.k=2"]),
        ("workload", ["run", "--plugin", "mine.py", "-o", "workload.kind=mine", "-o", "workload.samples=99"]),
    ],
)
def test_a_new_file_runs_as_it_is(kind, command, hpctrip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = hpctrip("new", "mine", "--kind", kind)
    assert ended.code == 0 and ended.out.splitlines()[1].startswith("start: hpctrip ")
    small = [line for line in LINES.split() if kind != "workload" or not line.startswith("workload")]
    ended = hpctrip(*command, *(word for line in small for word in ("-o", line)))
    assert ended.code == 0, ended.err
    assert hpctrip("new", "mine", "--kind", kind).code == 2


def test_a_shipped_input_is_found_by_its_name(hpctrip):
    assert hpctrip("check", "emnist_dynamic").out == hpctrip("check", ROOT / "inputs/emnist_dynamic.toml").out
    assert "did you mean 'emnist_dynamic'?" in hpctrip("check", "emnist_dinamic").err


@pytest.mark.parametrize(
    "command, file, right",
    [
        ("run", "studies/fig09.toml", "study"),
        ("check", "cluster/powerflow.toml", "cluster"),
        ("study", "smoke.toml", "run"),
        ("cluster check", "smoke.toml", "run"),
    ],
)
def test_the_input_of_another_command_is_recognised(command, file, right, hpctrip):
    ended = hpctrip(*command.split(), ROOT / "inputs" / file)
    assert ended.code == 2 and f"the input: is that of another command; hpctrip {right} FILE" in ended.err


def test_a_key_written_as_an_option_and_a_percentage_are_answered_with_the_right_spelling(hpctrip):
    assert "-o seed=VALUE" in hpctrip("run", "--seed", "3").err
    assert "-o train.lr=VALUE or -o server.lr=VALUE" in hpctrip("run", "--lr=3").err
    assert "write a fraction: 0.45" in hpctrip("check", "-o", "stop.target_accuracy=45%").err


def test_sites_that_follow_traces_name_their_power_domain_in_the_file_and_in_its_csv(
    hpctrip, trained, tmp_path
):
    run = trained("power.kind=trace")
    assert run.sites["trace_domain"].str.fullmatch(r"cell[a-j]_\w+").all()
    assert hpctrip("verify", run.path).out == f"{run.path}: ok\n"
    assert hpctrip("export", run.path, tmp_path).code == 0
    sites = pd.read_csv(tmp_path / "sites.csv")
    assert sites["trace_domain"].tolist() == run.sites["trace_domain"].tolist()


def test_a_run_reports_its_rounds_its_end_and_its_file(hpctrip, tiny, tmp_path):
    ended = hpctrip(tiny, "--out", tmp_path / "new folder" / "run.h5")  # no command: run
    assert ended.code == 0 and not ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith(f"hpctrip {package.__version__}: tiny, seed 0")
    assert sum(line.startswith("round ") for line in lines) == 3
    assert any(line.startswith("stopped: max_rounds = 3, after 3 rounds") for line in lines)
    assert any(line.startswith("time to accuracy 1: not reached") for line in lines)
    assert lines[-1] == f"results: {tmp_path / 'new folder' / 'run.h5'}"
    assert "(synthetic" in ended.out
    assert {path.name for path in (tmp_path / "new folder").iterdir()} == {"run.h5", "run.h5.ckpt0"}


def test_without_out_the_file_is_named_after_scenario_and_time(hpctrip, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hpctrip("run", tiny, "-o", "stop.max_rounds=1").code == 0
    (path,) = (tmp_path / "results").glob("*.h5")
    assert re.fullmatch(r"tiny-\d{8}-\d{6}-\d{6}\.h5", path.name)


def test_an_existing_file_is_replaced_only_with_overwrite(hpctrip, tiny, run_file, tmp_path):
    old = shutil.copy(run_file, tmp_path / "old.h5")
    before = old.read_bytes()
    args = ("run", tiny, "-o", "stop.max_rounds=1", "--out", old)
    assert hpctrip(*args).code == 2 and old.read_bytes() == before
    assert hpctrip(*args, "--overwrite").code == 0 and old.read_bytes() != before


def test_check_prints_values_in_force_and_refuses_what_run_refuses(hpctrip, tiny):
    ended = hpctrip("check", tiny)
    assert ended.code == 0 and "num_sites = 10" in ended.out and 'kind = "dirichlet"' in ended.out
    ended = hpctrip("check", tiny, "-o", "policy.kind=random", "-o", "policy.k=11")
    assert ended.code == 2 and "there are only 10 sites" in ended.err


def test_show_status_is_one_word_a_file(hpctrip, run_file):
    assert hpctrip("show", "--status", run_file, run_file.parent).out == "finished\n"
    ended = hpctrip("show", "--status", "nowhere.h5")
    assert ended.code == 2 and "nowhere.h5: no such file" in ended.err


def test_export_writes_the_tables(hpctrip, run_file, tmp_path):
    ended = hpctrip("export", run_file, tmp_path)
    assert ended.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"{table}.csv" for table in ("sites", "rounds", "rounds_sites", "candidates")),
        "columns.csv",
        "meta.json",
    }
    assert len(pd.read_csv(tmp_path / "rounds.csv")) == 2
    assert json.loads((tmp_path / "meta.json").read_text())["meta"]["scenario"] == "tiny"


@pytest.mark.parametrize(
    "args", [["show"], ["export", "run.h5"], ["verify"], ["fetch", "mnist", "x"], ["check", "--no-such"]]
)
def test_wrong_usage_exits_with_2(args, hpctrip):
    ended = hpctrip(*args)
    assert ended.code == 2 and re.match(r"Usage: .*hpctrip \w+ ", ended.err)


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["run", "--max-rounds", "2"], "For the key of the input: -o stop.max_rounds=VALUE."),
        (["run", "--lr=1"], "For the key of the input: -o train.lr=VALUE or -o server.lr=VALUE."),
        (["run", "--policy", "random"], "For the key of the input: -o policy.kind=VALUE."),
        (["run", "--data", "DIR"], "For the key of the input: -o workload.data=VALUE."),
        # of several commands, though a key is called so: compression.format
        (["run", "--format", "latex"], "Commands that have it: show, study tables, diff, verify, plan."),
        (["study", "smoke", "--figure=curves"], "Commands that have it: study tables."),
        (["run", "--stop"], "No such option '--stop'. "),
    ],
)
def test_an_unknown_option_names_its_key_or_the_commands_that_have_it(words, way_out, hpctrip):
    err = hpctrip(*words).err
    assert way_out in err and "compression" not in err and ("VALUE" in err) == ("VALUE" in way_out)


def test_prepare_fills_the_cache_and_names_the_data(hpctrip, tmp_path, monkeypatch):
    monkeypatch.setenv("HPCTRIP_CACHE", str(tmp_path))
    sizes = "workload.train_samples=20", "workload.test_samples=10"
    ended = hpctrip("prepare", *(f"-o{size}" for size in sizes))
    assert ended.code == 0 and "glyphs (synthetic" in ended.out and "20 training" in ended.out
    assert len(list(tmp_path.rglob("train_images.npy"))) == 1


def test_a_closed_pipe_is_no_error(launch):
    """As in `hpctrip keys | head`."""
    process = launch.start(0, "keys")
    process.stdout.close()
    err = process.stderr.read()
    process.wait(timeout=100)
    assert "Traceback" not in err, err


@pytest.mark.parametrize(("typed", "meant"), [("verfy", "verify"), ("chek", "check"), ("resum", "resume")])
def test_a_misspelt_command_is_not_taken_for_a_file(hpctrip, typed, meant):
    ended = hpctrip(typed, "x.h5")
    assert ended.code == 2 and f"no command or file '{typed}'; did you mean '{meant}'?" in ended.err


def test_a_file_named_nearly_like_a_command_is_still_a_file(hpctrip, tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chek").write_bytes(tiny.read_bytes())
    hpctrip("chek", "-o", "stop.max_rounds=0").check_refused(["stop.max_rounds = 0"])


def test_a_command_after_its_file_is_a_usage_error(hpctrip, tiny):
    ended = hpctrip(tiny, "check")
    assert ended.code == 2 and "check is a command, and commands come first: hpctrip check ..." in ended.err


@pytest.fixture
def complete(monkeypatch, capsys):
    """What `hpctrip` prints to a shell that completes words, or asks how to."""

    def run(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(SystemExit):
            cli.main([], prog_name="hpctrip")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("hpctrip ver", "plain,verify"),
        ("hpctrip in.toml --resu", "plain,--resume"),
        ("hpctrip show ru", "file,ru"),
    ],
)
def test_the_shell_completes_commands_options_and_files(words, completed, complete):
    shown = complete(_HPCTRIP_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=len(words.split()) - 1)
    assert completed in shown.splitlines()


def test_the_completion_line_of_the_tutorial_works(complete):
    tutorial = Path(__file__).parents[2].joinpath("docs/tutorial.md").read_text()
    variable, value = re.search(r'`eval "\$\((\w+)=(\w+) hpctrip\)"`', tutorial).groups()
    assert "complete -o nosort -F _hpctrip_completion hpctrip" in complete(**{variable: value})


@pytest.mark.parametrize(
    ("line", "shown"), [("policy.kind=none", True), ("workload={kind='images', data='none'}", False)]
)
def test_the_demonstration_is_announced_unless_something_of_the_users_own_is_in_it(hpctrip, line, shown):
    assert ("demonstration on synthetic data" in hpctrip("run", "-o", line).out) == shown
