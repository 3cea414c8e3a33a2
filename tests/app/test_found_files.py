"""What somebody else's results file or checkpoint names is neither written, nor run, nor read."""

import os
import re
import shutil

import pytest
from strangers import OWNERS, forge, owned_by

from hpctrip.app.experiment import Experiment
from hpctrip.app.users_own import USERS_OWN
from hpctrip.base.component import named_tables, registry_of
from hpctrip.base.errors import InputError
from hpctrip.base.sources import Reads
from hpctrip.figures.common.reading import traces_of
from hpctrip.record.checkpoint import newest
from hpctrip.record.reader import open_run

ROUNDS, MORE = ("-ostop.max_rounds=2",), ("-ostop.max_rounds=3",)
SECRET = "TOP-SECRET-FIRST-LINE"


@pytest.fixture(scope="module")
def sent(hpctrip, tiny, tmp_path_factory):
    """A folder with run.h5, a run of two rounds, and its checkpoints."""
    run = tmp_path_factory.mktemp("sent") / "run.h5"
    assert hpctrip("run", tiny, *ROUNDS, "-ocheckpoint.every_rounds=1", "--out", run).code == 0
    return run.parent


@pytest.fixture
def received(hpctrip, tiny, folder, sent):
    """`received(tables, owner, **about)`: received/run.h5 and its checkpoints, into whose input somebody has written
    these tables; with `lines` it is a run of its own, made under these."""

    def make(tables, owner=None, lines=(), **about):
        run = folder / "received/run.h5"
        if lines:
            assert hpctrip("run", tiny, *ROUNDS, *lines, "--out", run).code == 0
        else:
            shutil.copytree(sent, run.parent)
        forge(run, tables, **about)
        owned_by(run.parent, owner)
        return run

    return make


def commands(run):
    """All that take up the input of a found file."""
    return {
        "resume": ("resume", run, *MORE),
        "resume a run that is finished": ("resume", run),
        "resume from a checkpoint": ("resume", f"{newest(run)[1]}", *MORE, "--out", "on.h5"),
        "retime": ("retime", run, "--out", "retimed.h5"),
    }


COMMANDS = ("resume", "resume a run that is finished", "resume from a checkpoint", "retime")


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_it_does_not_say_what_is_written_or_set(hpctrip, folder, received, command, owner):
    (folder / "precious.txt").write_text("mine")
    writes = {
        "jsonl": {"path": f"{folder}/precious.txt"},
        "prometheus": {"folder": f"{folder}/new"},
        "mlflow": {"tracking_uri": f"sqlite:///{folder}/new.db"},
    }
    run = received(
        {"callbacks": writes, "store": {"path": f"{folder}/store"}, "knobs": {"clock_mhz": 10}}, owner
    )
    ended = hpctrip(*commands(run)[command])
    assert ended.code == 0, ended.err
    assert (folder / "precious.txt").read_text() == "mine"
    assert not {"new", "new.db", "store"} & {path.name for path in folder.iterdir()}
    (line,) = ended.report
    assert "so this of its input is left out; to have it, add: -o 'callbacks={" in line
    assert all(key in line for key in ("precious.txt", "tracking_uri", "-o 'store={", "-o 'knobs={"))


def test_what_the_user_gives_again_is_written(hpctrip, folder, received):
    run = received({"callbacks": {"jsonl": {"path": f"{folder}/theirs"}}})
    ended = hpctrip("resume", run, *MORE, "-ocallbacks.jsonl.path='mine'")
    assert ended.code == 0 and ended.err == ""
    assert len((folder / "mine").read_text().splitlines()) == 3 and not (folder / "theirs").exists()


def test_the_same_command_again_writes_what_it_says_itself(hpctrip, tiny, folder, received):
    run = received({"callbacks": {"jsonl": {"path": f"{folder}/theirs"}}})
    again = ("-ocheckpoint.every_rounds=1", "-ocallbacks.jsonl.path='mine'", "--resume", "--out", run)
    ended = hpctrip("run", tiny, *MORE, *again)
    assert ended.code == 0 and ended.err == ""
    assert (folder / "mine").exists() and not (folder / "theirs").exists()


def test_the_way_on_after_an_interruption_gives_all_of_it_again(hpctrip, tiny, folder, monkeypatch):
    monkeypatch.setattr("hpctrip.app.signals.Interruption.reason", lambda *facts: "enough")
    ended = hpctrip("run", tiny, *ROUNDS, "-ocallbacks.jsonl.path='my lines'", "--out", "run.h5")
    said = """python -m hpctrip resume run.h5 -o 'callbacks={jsonl = {path = "my lines"}}'"""
    assert ended.code == 85 and said in ended.err


HARMLESS = {
    *("name", "label", "accounts.currency", "accounts.site_max_cost", "stop.max_cost"),
    *("workload.*.words", "workload.*.target_modules", "throughput.*.gpu"),
    *(
        f"{signal}.*.{key}"
        for signal in ("carbon", "price")
        for key in ("start", "timezone", "site_column", "time_column", "value_column", "zone_column")
    ),
}
"""Keys that hold a text and name no place (* is a kind); a results file's name is made of `name`, which has no /."""


def keys_of(owner, prefix=""):
    """(dotted key, field) of every key that may hold a text, in every component of every registry."""
    for name, field in owner.model_fields.items():
        tables = registry_of(field) or getattr(named_tables(field), "registry", None)
        if tables is not None:
            for kind, cls in tables.items():
                yield from keys_of(cls, f"{prefix}{name}.{kind}.")
        elif hasattr(field.annotation, "model_fields"):
            yield from keys_of(field.annotation, f"{prefix}{name}.")
        elif re.search(r"\bstr\b|Path", f"{field.annotation} {field.metadata}"):
            yield prefix + name, field


def test_of_every_key_that_holds_a_text_it_is_decided_whether_a_found_file_may_say_it():
    """Whoever adds a key that names what is written, run or connected to puts it into a table of USERS_OWN; one that is
    read is marked with `Reads`; any other is added to these harmless texts."""
    undecided = {
        key if key.count(".") < 2 else f"{key.split('.')[0]}.*.{key.rpartition('.')[2]}"
        for key, field in keys_of(Experiment)
        if key.split(".")[0] not in USERS_OWN and not any(isinstance(mark, Reads) for mark in field.metadata)
    }
    assert undecided == HARMLESS
    places = {key for key, _ in keys_of(Experiment) if key.split(".")[0] in USERS_OWN}
    assert places >= {
        "plugins",
        "store.path",
        "callbacks.jsonl.path",
        "callbacks.mlflow.tracking_uri",
        "callbacks.prometheus.folder",
        "callbacks.tensorboard.folder",
    }


def fifo(path):
    os.mkfifo(path)
    return path


def secret(path):
    path.write_text(f"{SECRET}\n1\n2\n")
    return path


def secrets_in(folder):
    folder.mkdir()
    secret(folder / "cella_pdu1.csv")
    secret(folder / "emnist-digits-train-images-idx3-ubyte")
    return folder


NAMED = {
    "a secret": ("sites.path", lambda f: {"sites": {"kind": "csv", "path": str(secret(f / "s"))}}),
    "a secret where the policy counts sites": (
        "sites.path",
        lambda f: {
            "sites": {"kind": "csv", "path": str(secret(f / "s"))},
            "policy": {"kind": "centralized"},
        },
    ),
    "a pipe": ("sites.path", lambda f: {"sites": {"kind": "csv", "path": str(fifo(f / "pipe"))}}),
    "a device": ("faults.outages", lambda f: {"faults": {"outages": "/dev/zero", "deadline_s": 1e5}}),
    "outages": (
        "faults.outages",
        lambda f: {"faults": {"outages": str(secret(f / "s")), "deadline_s": 1e5}},
    ),
    "the whole disk": ("power.path", lambda f: {"power": {"kind": "trace", "path": "/**/*.csv"}}),
    "many folders": ("power.path", lambda f: {"power": {"kind": "trace", "path": "/*/*/*/*/*.csv"}}),
    "a folder": ("power.path", lambda f: {"power": {"kind": "trace", "path": str(secrets_in(f / "d"))}}),
    "a cluster's input": (
        "power.path",
        lambda f: {"power": {"kind": "cluster", "path": str(secret(f / "s"))}},
    ),
    "a curve": (
        "throughput.path",
        lambda f: {"throughput": {"kind": "curve", "path": str(secret(f / "s"))}},
    ),
    "training data": (
        "workload.data",
        lambda f: {"workload": {"data": str(secrets_in(f / "d")), "split": "digits"}},
    ),
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("command", ["resume", "retime"])
@pytest.mark.parametrize("what", NAMED)
def test_it_opens_no_file_that_its_run_did_not_read(hpctrip, folder, received, what, command, owner):
    key, tables = NAMED[what]
    found = tables(folder)
    lied = [f"{key} x blake2b:{'0' * 32}"]
    run = received(found, owner, sources=lied, data_files=lied)
    before = {path.name: path.read_bytes() for path in run.parent.iterdir()}
    ended = hpctrip(*commands(run)[command])
    ended.check_refused([f"{key}: ", "for a found file nothing else is opened", "bring it back"])
    assert SECRET not in ended.err
    assert {path.name: path.read_bytes() for path in run.parent.iterdir()} == before


def test_the_same_files_are_opened_again_also_by_a_pattern_of_names(hpctrip, folder, received):
    (folder / "traces").mkdir()
    rows = "".join(f"{600_000_000 + step * 300_000_000},a,pdu1,0.5\n" for step in range(20))
    (folder / "traces/cella_pdu1.csv").write_text(f"time,cell,pdu,production_power_util\n{rows}")
    run = received({}, lines=("-opower={kind='trace', path='traces/cell*.csv'}",))
    assert hpctrip("resume", run, *MORE).code == 0
    assert hpctrip("retime", run, "--out", "retimed.h5").code == 0
    assert len(traces_of([open_run(run)]))


def test_a_path_that_the_user_names_is_the_users_own(hpctrip, folder, received):
    (folder / "sites.csv").write_text("distance_m\n" + "5000\n" * 10)
    path = "-osites.path='sites.csv'"
    run = received({}, lines=("-osites={kind='csv', path='sites.csv'}",))
    forge(run, {}, sources=[])
    hpctrip("resume", run, *MORE).check_refused(
        ["sites.path: sites.csv is not what", "name your own with -o"]
    )
    assert hpctrip("resume", run, *MORE, path).code == 0


def test_a_figure_of_traces_opens_no_others(folder, received):
    power = {"kind": "trace", "path": str(secrets_in(folder / "d")), "column": "measured"}
    run = open_run(received({"power": power | {"flags": "true-is-bad", "synthetic_seed": 1}}))
    with pytest.raises(InputError, match="for a found file nothing else is opened") as refused:
        traces_of([run])
    assert SECRET not in str(refused.value)
