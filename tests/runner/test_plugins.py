"""Code runs because the user named it in this command, or installed it; never because a results file names it."""

import dataclasses
import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from hpctrip.base.errors import InputError
from hpctrip.base.io import digest
from hpctrip.record.checkpoint import generations, newest, pack
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.schema import Column
from hpctrip.record.writer import write_run
from hpctrip.runner.experiment import read_input
from hpctrip.sim.policies import POLICIES

MINE = '''
from hpctrip.sim.policies import POLICIES, Decision, Policy


@POLICIES.add
class Mine(Policy):
    """The first sites."""

    kind = "mine"

    def select(self, sites, history, rng):
        return Decision(sites.distance_m.argsort()[:3])
'''


@pytest.fixture
def mine(folder):
    """The plug-in mine.py in the working folder."""
    (folder / "mine.py").write_text(MINE)
    return folder / "mine.py"


@pytest.fixture(scope="module")
def original(hpctrip, tiny, tmp_path_factory):
    """A folder with run.h5, two rounds of a run with this plug-in, which is forgotten then."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("mine.py").write_text(MINE)
        lines = ("--plugin", "mine.py", *ROUNDS, *CHECKPOINTS, "-opolicy.kind=mine")
        ended = hpctrip("run", tiny, *lines, "--out", "run.h5")
    assert ended.code == 0, ended.err
    del POLICIES["mine"]
    return folder


@pytest.fixture
def made(original, mine):
    """A copy of that run in the working folder; the digest of its plug-in."""
    shutil.copytree(original, mine.parent, dirs_exist_ok=True)
    return digest(mine.read_bytes())


ROUNDS, MORE = ("-ostop.max_rounds=2",), ("-ostop.max_rounds=3",)
CHECKPOINTS = ("-ocheckpoint.every_rounds=1",)


def test_a_run_records_its_plug_ins_by_path_and_digest(made):
    assert f"plugins mine.py blake2b:{made}" in open_run("run.h5").meta["sources"]
    assert f"plugins mine.py blake2b:{made}" in newest("run.h5")[0].metadata["sources"]


def test_a_resume_needs_the_plug_ins_again(hpctrip, made):
    refused = hpctrip("resume", "run.h5", *MORE)
    refused.check_refused(
        ["run.h5.ckpt", f"'mine.py' (digest {made})", "give the same again, e.g. --plugin PATH"]
    )
    assert "mine" not in POLICIES
    ended = hpctrip("resume", "run.h5", *MORE, "--plugin", "mine.py")
    assert ended.code == 0, ended.err
    assert len(open_run("run.h5").rounds) == 3


def test_the_resume_command_names_the_plug_ins(hpctrip, tiny, folder, monkeypatch):
    (folder / "my own.py").write_text(MINE)
    monkeypatch.setattr("hpctrip.runner.signals.Interruption.reason", lambda *facts: "enough")
    args = ("--plugin", "my own.py", "-opolicy.kind=mine", *ROUNDS, "--out", "run.h5")
    ended = hpctrip("run", tiny, *args)
    assert ended.code == 85
    assert "resume with: python -m hpctrip resume run.h5 --plugin 'my own.py'" in ended.err
    del POLICIES["mine"]


def test_a_plug_in_may_have_another_path_and_the_same_content(hpctrip, made, folder):
    (folder / "elsewhere").mkdir()
    shutil.move("mine.py", "elsewhere/other_name.py")
    path = folder / "elsewhere/input.toml"
    path.write_text("plugins = ['other_name.py']\n")
    assert hpctrip("resume", "run.h5", path, *MORE, "--out", "on.h5").code == 0
    assert open_run("on.h5").input["plugins"] == [str(folder / "elsewhere/other_name.py")]


def test_other_plug_ins_are_refused_with_both_digests_and_do_not_run(hpctrip, made, mine, folder):
    mine.write_text(MINE + f"\nopen({str(folder / 'ran')!r}, 'w')\n")
    other = digest(mine.read_bytes())
    refused = hpctrip("resume", "run.h5", *MORE, "--plugin", "mine.py")
    refused.check_refused([f"made with 'mine.py' (digest {made}), given is 'mine.py' (digest {other})"])
    assert not (folder / "ran").exists()
    refused = hpctrip("resume", "run.h5", *MORE, "-oplugins=['mine.py']")
    refused.check_refused([made, other])


def test_a_run_without_plug_ins_is_not_resumed_with_plug_ins(hpctrip, tiny, mine):
    assert hpctrip("run", tiny, *ROUNDS, "--out", "run.h5").code == 0
    hpctrip("resume", "run.h5", *MORE, "--plugin", "mine.py").check_refused(
        ["made with no plug-in, given is 'mine.py'"]
    )


def test_run_with_resume_accepts_its_own_plug_in_and_no_other(hpctrip, tiny, made, mine):
    command = ("run", tiny, "--resume", "--out", "run.h5", *MORE, *CHECKPOINTS)
    command += ("-opolicy.kind=mine", "--plugin", mine)
    assert hpctrip(*command).code == 0 and len(open_run("run.h5").rounds) == 3
    mine.write_text(MINE.replace("[:3]", "[:4]"))
    hpctrip(*command).check_refused([made, digest(mine.read_bytes())])
    for file in mine.parent.glob("run.h5.ckpt*"):
        file.unlink()
    hpctrip(*command).check_refused(["run.h5: the run was made with", made])


def test_verify_runs_only_the_plug_ins_of_the_run(hpctrip, made, mine, folder):
    ended = hpctrip("verify", "run.h5")
    assert ended.code == 1 and ended.out.startswith("run.h5: not verified: consistent, but ")
    assert made in ended.out and "--plugin" in ended.out
    assert '"ok": false' in hpctrip("verify", "run.h5", "--format", "json").out
    assert hpctrip("verify", "run.h5", "--no-replay").code == 0
    verified = hpctrip("verify", "run.h5", "--plugin", "mine.py")
    assert (verified.code, verified.out) == (0, "run.h5: ok\n")
    mine.write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    ended = hpctrip("verify", "run.h5", "--plugin", "mine.py")
    assert "were not replayed" in ended.out and digest(mine.read_bytes()) in ended.out
    assert not (folder / "ran").exists()


def test_paths_in_an_input_file_are_relative_to_it_and_others_to_the_working_folder(mine, folder):
    (folder / "inputs").mkdir()
    mine.rename(folder / "inputs/mine.py")
    (folder / "inputs/x.toml").write_text("plugins = ['mine.py']\npolicy.kind = 'mine'\n")
    assert read_input(["inputs/x.toml"]).experiment.plugins == ["inputs/mine.py"]
    assert read_input(["inputs/x.toml"], ["plugins=['inputs/mine.py']"]).experiment.policy.kind == "mine"
    with pytest.raises(InputError, match=r"plugins: 'mine\.py': no such file"):
        read_input(["inputs/x.toml"], ["plugins=['mine.py']"])
    (folder / "more.py").write_text("")
    run_input = read_input(["inputs/x.toml"], plugins=["more.py"])
    assert run_input.experiment.plugins == ["inputs/mine.py", "more.py"]


def test_plug_ins_of_one_file_name_are_two_modules(hpctrip, tiny, folder):
    for name in "ab":
        (folder / name).mkdir()
        (folder / name / "mine.py").write_text(MINE.replace('"mine"', f'"{name}"'))
    read_input([str(tiny)], plugins=["a/mine.py", "b/mine.py"])
    modules = [sys.modules[POLICIES[name].__module__] for name in "ab"]
    assert [module.__file__ for module in modules] == ["a/mine.py", "b/mine.py"]
    read_input([str(tiny)], plugins=[str(folder / "a/mine.py")])  # another path of the same file
    (folder / "b/mine.py").write_text(MINE.replace('"mine"', '"a"'))
    ended = hpctrip("check", tiny, "--plugin", "a/mine.py", "--plugin", "b/mine.py")
    ended.check_refused(["plugins: 'b/mine.py'", "kind 'a' is already taken by a/mine.py; choose another"])


@pytest.mark.parametrize("command", ["check", "plan", "prepare"])
def test_every_command_that_reads_an_input_takes_plug_ins(hpctrip, tiny, mine, command):
    ended = hpctrip(command, tiny, "--plugin", "mine.py", "-opolicy.kind=mine")
    assert ended.code == 0, ended.err


def test_diff_compares_plug_ins_by_content_and_not_by_path(hpctrip, tiny, mine, folder):
    def run(out, plugin):
        assert hpctrip("run", tiny, "--plugin", plugin, *ROUNDS, "--out", out).code == 0
        return open_run(out)

    a = run("a.h5", "mine.py")
    shutil.copy("mine.py", "copy.py")
    del POLICIES["mine"]
    assert diff(a, run("b.h5", "copy.py")) == []
    (folder / "copy.py").write_text("# nothing")
    (line,) = diff(a, run("c.h5", "copy.py"))
    assert str(line).startswith("read: plugins: 'mine.py' ") and digest(b"# nothing") in str(line)


def test_a_compiled_file_beside_a_plug_in_does_not_run_in_its_place(hpctrip, tiny, mine, folder):
    import py_compile

    evil = folder / "evil.py"
    evil.write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    compiled = py_compile.compile(
        str(evil), str(folder / "mine.pyc"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    import importlib.util

    cache = importlib.util.cache_from_source(str(mine))
    os.makedirs(os.path.dirname(cache))
    shutil.move(compiled, cache)
    assert hpctrip("check", tiny, "--plugin", mine).code == 0
    assert not (folder / "ran").exists()


# --- plug-ins that only a file names


@pytest.fixture(params=["recorded", "not recorded"])
def naming(request, hpctrip, tiny, folder):
    """run.h5 and its checkpoints, whose recorded input names the plug-in theirs.py, which writes the file `ran`; its
    digest is among what the run read, or is not."""
    (folder / "theirs.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    assert hpctrip("run", tiny, *ROUNDS, *CHECKPOINTS, "--out", "run.h5").code == 0
    checkpoint, _, _ = newest("run.h5")
    tables, plugins = tomllib.loads(checkpoint.input_toml), {"plugins": ["theirs.py"]}
    sources = [f"plugins theirs.py blake2b:{'0' * 32}"] if request.param == "recorded" else []
    text = tomli_w.dumps(tables | plugins)
    metadata = {**checkpoint.metadata, "sources": sources}
    for file in generations("run.h5"):
        file.write_bytes(b"".join(pack(dataclasses.replace(checkpoint, input_toml=text, metadata=metadata))))
    run = open_run("run.h5")
    units, docs = run.sites.attrs["units"], run.sites.attrs["descriptions"]
    sites = {name: Column(run.sites[name].to_numpy(), units[name], docs[name]) for name in run.sites}
    texts = {"input_toml": text, "input_json": json.dumps(run.input | plugins), "sources": sources}
    write_run("run.h5", run.meta | texts, sites, run.history())
    return request.param == "recorded"


def test_a_plug_in_that_only_a_file_names_does_not_run(hpctrip, tiny, folder, naming):
    for command in (
        ("verify", "run.h5"),
        ("show", "run.h5"),
        ("diff", "run.h5", "run.h5"),
        ("export", "run.h5", "csv"),
    ):
        assert hpctrip(*command).code == (1 if naming and command[0] == "verify" else 0)
    for command in (
        ("resume", "run.h5.ckpt0", *MORE, "--out", "on.h5"),
        ("retime", "run.h5", "--out", "new.h5"),
        ("resume", "run.h5", *MORE),
        ("run", tiny, *MORE, *CHECKPOINTS, "--resume", "--out", "run.h5"),
    ):
        ended = hpctrip(*command)
        if naming:
            ended.check_refused(["made with plug-ins", "theirs.py", "--plugin PATH"])
        assert ended.code in (0, 2) and not (folder / "ran").exists()


# --- installed packages


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`install(name, version, code)`: a package with an entry point, in a folder of its own on the path."""

    def make(name, version, code):
        site = tmp_path / "site-packages"
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[hpctrip.components]\nmine = {name}\n")
        (site / f"{name}.py").write_text(code)
        if str(site) not in os.sys.path:
            monkeypatch.syspath_prepend(site)
        return site

    return make


SEES_LABELS = """
import numpy as np
from hpctrip.sim.policies import POLICIES, Decision, Policy


@POLICIES.add
class MostDigits(Policy):
    kind = "most-digits"
    sees_labels = True

    def select(self, sites, history, rng):
        counts = sites.label_counts
        assert (counts.sum(1) == sites.num_samples).all() or len(counts[0]) == 2  # one of each in a trial
        return Decision(np.argsort(-counts[:, :10].sum(1), kind="stable")[:3])
"""


def test_a_policy_sees_the_labels_of_sites_and_its_decisions_are_replayed(folder, hpctrip, trained):
    (folder / "digits.py").write_text(SEES_LABELS)
    run = trained("plugins=['digits.py']", "policy.kind=most-digits", "stop.max_rounds=2")
    labels = run.sites.filter(regex=r"^label_\d+$")
    assert labels.shape == (10, 62) and (labels.sum(axis=1) == run.sites["num_samples"]).all()
    most = np.argsort(-labels.to_numpy()[:, :10].sum(1), kind="stable")[:3]
    assert set(run.cohorts["site"]) == set(most)
    assert hpctrip("verify", "--plugin", "digits.py", run.path).out == f"{run.path}: ok\n"
    assert hpctrip("check", "--plugin", "digits.py", "-o", "policy.kind=most-digits").code == 0


def test_an_installed_package_adds_its_components_and_is_recorded(hpctrip, trained, install):
    install("nearest_sites", "1.2", MINE.replace('"mine"', '"installed"'))
    run = trained("policy.kind=installed")
    assert run.meta["packages"] == ["nearest_sites 1.2"] and np.ptp(run.cohorts["site"]) >= 0
    assert "## `installed`\n\nThe first sites.\n" in hpctrip("keys", "policy").out


def test_a_package_that_cannot_be_imported_is_one_clear_line(hpctrip, tiny, install):
    install("broken_package", "0.1", "import nowhere_at_all\n")
    hpctrip("check", tiny).check_refused(
        ["installed package broken_package 0.1: its components cannot be imported: ModuleNotFoundError"]
    )


def test_a_package_in_the_working_folder_is_not_imported(hpctrip, tiny, install, monkeypatch, tmp_path):
    site = install("found_here", "1", f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(site)
    assert hpctrip("check", tiny).code == 0
    assert not (tmp_path / "ran").exists()


BROKEN = """
from hpctrip.api import POLICIES, Decision, Policy

@POLICIES.add
class Broken(Policy):
    kind = "COMMAND"

    def select(self, sites, history, rng):
        return Decision([len(history) // 0])
"""


@pytest.mark.parametrize(
    "command", [("check",), ("plan",), ("run", "--out", "run.h5")], ids=["check", "plan", "run"]
)
def test_an_exception_of_a_plug_in_shows_the_plug_ins_own_lines_alone(
    command, hpctrip, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(BROKEN.replace("COMMAND", f"broken-{command[0]}"))
    (tmp_path / "input.toml").write_text(
        f'policy.kind = "broken-{command[0]}"\nworkload.train_samples = 500\n'
    )
    ended = hpctrip(command[0], "input.toml", "--plugin", "broken.py", *command[1:])
    head, where, line, *_, last = ended.err[ended.err.index("Traceback") :].splitlines()
    assert head == "Traceback of the plug-in (most recent call last):"
    assert where == '  File "broken.py", line 9, in select' and "len(history) // 0" in line
    assert last.startswith("hpctrip: broken.py, line 9, in Broken.select: ZeroDivisionError: ")
    assert ended.code == 2 and ended.err.count("  File ") == 1


@pytest.mark.parametrize(
    ("score", "complaint"),
    [
        ("sites.label_counts.sum(1)", "set sees_labels = True"),
        ("sites.label_counts[:, 0]", "set sees_labels = True"),
        ("np.argsort(sites.label_counts)", "set sees_labels = True"),
        ("sites.power", "sites have no 'power'; did you mean"),
    ],
)
def test_a_policy_that_uses_what_it_does_not_see_ends_in_one_clear_line(score, complaint, folder, hpctrip):
    text = SEES_LABELS.replace("    sees_labels = True\n", "").replace("sites.label_counts", score, 1)
    (folder / "digits.py").write_text(text)
    ended = hpctrip("check", "--plugin", "digits.py", "-o", "policy.kind=most-digits")
    assert ended.code in (1, 2) and complaint in ended.err.splitlines()[-1], ended.err


@pytest.mark.parametrize("place", ["import", "select"])
def test_numpys_errors_are_a_plug_ins_own_affair(place, folder, hpctrip):
    change = "np.seterr(all='raise')\n"
    text = MINE.replace('"mine"', f'"loud-{place}"')
    before, inside = (change, "") if place == "import" else ("", f"        {change}")
    text = text.replace("        return Decision", f"{inside}        return Decision")
    (folder / "loud.py").write_text(f"import numpy as np\n{before}{text}")
    ended = hpctrip("check", "--plugin", "loud.py", "-o", f"policy.kind=loud-{place}")
    assert ended.code == 0 and np.geterr()["divide"] == "warn", ended.err


def test_an_unknown_policy_may_be_one_of_a_plugin(hpctrip):
    hpctrip("check", "-o", "policy.kind=most-digits").check_refused(["one of your own: --plugin FILE.py"])
