"""`verify` replays the simulated half of a run from its own file."""

from __future__ import annotations

import glob
import json
import pkgutil
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.config.sources import NamedFiles
from hpctrip.record import schema
from hpctrip.record.diff import differences
from hpctrip.record.reader import open_run
from hpctrip.record.results_file import FORMATS
from hpctrip.record.schema import Column
from hpctrip.record.show import facts_of, summary
from hpctrip.record.verify import contradictions, verify
from hpctrip.record.writer import write_run
from hpctrip.runner.replay import located, replay
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.rounds import History

CLOCKS = ("straggler", "max-plus-max", "mean-power", "aggregate-throughput")


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_can_be_replayed(trained, policy):
    k = ("policy.k=3",) if policy in ("random", "static") else ()
    k = ("policy.round_s=62", "policy.least_work=1") if policy == "fedqueue" else k
    run = trained(f"policy.kind={policy}", *k)
    assert verify(run) == [] and replay(run) == [] and run.meta["policy"] == policy
    expected = {"random": 3, "static": 3, "all": 10, "centralized": 1}.get(policy)
    assert expected in (None, *run.rounds["num_sites"])


@pytest.mark.parametrize(
    ("clock", "power"), [*((clock, "frozen") for clock in CLOCKS), ("straggler", "integrated")]
)
def test_every_clock_is_replayed(trained, clock, power):
    """Rounds cross the steps of the trace; see below for the other clocks where power is integrated."""
    lines = ("profiler.power_noise=0.1", "power.kind=trace", "timing.seconds_per_sample=10")
    run = trained(f"timing.clock={clock}", f"timing.power={power}", *lines, "stop.max_rounds=2")
    assert verify(run) == [] and replay(run) == [] and run.rounds["makespan_s"].min() > 400


def written_anew(run, path, history, attributes=schema.ATTRIBUTES, **sites):
    """A file of this run with another history and other columns of its sites, without attributes other than these, and
    with valid checksums."""
    units, docs = run.sites.attrs["units"], run.sites.attrs["descriptions"]
    table = {c: Column(sites.get(c, run.sites[c].to_numpy()), units[c], docs[c]) for c in run.sites}
    meta = {name: value for name, value in run.meta.items() if name in attributes}
    meta |= {"input_toml": run.input_toml, "input_json": json.dumps(run.input)}
    write_run(path, meta, table, history)
    return open_run(path)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_forged_makespan_is_found_without_a_replay(trained, clock, hpctrip, tmp_path):
    """All that follows from it is forged too; the times of the cohort contradict it. The unchanged run is replayed."""
    faults = ("faults.deadline_s=18", "faults.lost_fraction=0.3", "faults.mtbf_s=60", "power.kind=trace")
    assert replay(trained(f"timing.clock={clock}", *faults)) == []
    run = trained(f"timing.clock={clock}", "stop.max_rounds=2")
    first, second = run.history().rows
    makespan_s = 0.9 * second.makespan_s
    gain = second.accuracy - first.accuracy
    forged = replace(
        second,
        makespan_s=makespan_s,
        clock_s=first.clock_s + makespan_s,
        efficiency=gain / makespan_s,
    )
    path = tmp_path / "forged.h5"
    written_anew(run, path, History((first, forged)))
    ended = hpctrip("verify", "--no-replay", path)
    ended.check_refused(
        [f"round 2: makespan_s is {makespan_s:g}, the cohort's times give", f"(clock {clock})"]
    )


def test_a_file_from_before_the_number_of_parameters_was_recorded_is_replayed(trained, tmp_path, monkeypatch):
    run = trained("stop.max_rounds=2")
    older = {name: spec for name, spec in schema.ATTRIBUTES.items() if not spec.is_later}
    with monkeypatch.context() as patch:
        patch.setattr(schema, "RUN", schema.RUN._replace(attributes=older))
        written_anew(run, tmp_path / "old.h5", run.history(), older)
    old = open_run(tmp_path / "old.h5")
    assert "num_params" in old.added and verify(old) == [] and replay(old) == []


def test_measured_compute_times_are_taken_from_the_record(trained):
    assert replay(trained("timing.compute=measured")) == []


FORGED = {
    # {what is forged in round 2: (the changed columns of its cohort, what the replay says)}
    "a cohort in another order": (
        lambda row: {name: getattr(row.cohort, name)[::-1] for name in row.cohort.__dataclass_fields__},
        r"round 2: its cohort .* 'powertrip' chooses",
    ),
    "a communication time": (
        lambda row: {"comm_s": row.cohort.comm_s + np.where(row.cohort.site == row.straggler, 0, 0.5)},
        "comm_s is .*, recomputed",
    ),
    "a power fraction": (lambda row: {"power_fraction": row.cohort.power_fraction / 2}, "power_fraction is"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_column_that_verify_accepts_is_found_by_the_replay(what, trained, tmp_path):
    change, fault = FORGED[what]
    run = trained("stop.max_rounds=3")
    first, second, third = run.history().rows
    second = replace(second, cohort=replace(second.cohort, **change(second)))
    forged = written_anew(run, tmp_path / "forged.h5", History((first, second, third)))
    assert verify(forged) == [] and re.search(fault, "\n".join(map(str, replay(forged))))


def test_sites_other_than_those_of_the_input_are_found_by_the_replay(trained, tmp_path):
    run = trained("stop.max_rounds=1")
    forged = written_anew(run, tmp_path / "forged.h5", run.history(), distance_m=np.full(10, 1e6))
    assert verify(forged) == []
    assert str(replay(forged)[0]).startswith(f"{forged.path}: site 0: distance_m is 1e+06, recomputed")


@pytest.fixture
def received(hpctrip, tiny, tmp_path):
    """`received(name, content, key, *more)`: a results file whose input names that file, which is not where it was."""

    def results(name, content, key, *more):
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / name).write_text(content)
        options = [part for line in (f"{key}='{theirs / name}'", *more) for part in ("-o", line)]
        ended = hpctrip("run", tiny, "-o", "stop.max_rounds=1", *options, "--out", tmp_path / "run.h5")
        assert ended.code == 0, ended.err
        theirs.rename(tmp_path / "mine")
        return tmp_path / "run.h5"

    return results


NAMED = {
    "sites": ("places.csv", "distance_mi\n" + "500\n" * 10, "sites.path", "sites.kind='csv'"),
    "outages": ("out.csv", "site,start_s,end_s\n0,0,5\n", "faults.outages", "faults.deadline_s=60"),
    "traces": (
        "cella.csv",
        "time,cell,pdu,production_power_util\n"
        + "".join(f"{600_000_000 + 300_000_000 * step},a,6,0.5\n" for step in range(9)),
        "power.path",
        "power.kind='trace'",
    ),
}


@pytest.mark.parametrize("what", NAMED)
def test_a_file_that_the_input_names_is_opened_only_where_the_user_names_it(
    what, received, hpctrip, tmp_path
):
    name, content, key, *more = NAMED[what]
    out, mine = received(name, content, key, *more), tmp_path / "mine"
    there = tmp_path / "theirs" / name
    there.parent.mkdir()
    there.write_text("another file")
    ended = hpctrip("verify", out)
    assert ended.code == 1 and f"were not replayed: it needs {key} = '{there}'" in ended.out
    assert "--data" in ended.out
    for named in (mine, mine / name):
        ended = hpctrip("verify", out, "--data", tmp_path / "nowhere", "--data", named)
        assert (ended.code, ended.out) == (0, f"{out}: ok\n"), named


@pytest.mark.parametrize(
    ("value", "data", "found"),
    [
        ("a.csv", ["d/a.csv"], "d/a.csv"),
        ("/elsewhere/d/a.csv", ["."], "d/a.csv"),
        ("/elsewhere/d/a.csv", ["d"], "d/a.csv"),
        ("/elsewhere/a.csv", ["d"], "d/a.csv"),
        ("/elsewhere/b.csv", ["d/a.csv", "d"], None),
        ("../../a.csv", ["d"], "d/a.csv"),
        ("a.csv/..", ["d"], None),
        ("/d/../../secret", ["d"], None),
        ("/theirs/d", ["d"], "d"),
        ("/theirs/d", ["."], "d"),
        ("/theirs/d/*.csv", ["d"], "d/*.csv"),
        ("/theirs/*/a*.csv", ["d"], "d/a*.csv"),
        ("/theirs/**", ["d"], None),
        ("d/x*.csv", ["d"], None),
        ("/", ["d"], None),
        ("", ["d"], None),
    ],
)
def test_a_named_file_is_found_by_how_its_path_ends(value, data, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.csv").write_text("")
    (tmp_path / "secret").write_text("")
    names = NamedFiles("power.path", value, _files)
    assert located(names, data) == found


def _files(path):
    found = [Path(name) for name in glob.glob(path)]
    if not found:
        raise InputError(path, "no such file")
    return list(found[0].iterdir()) if found[0].is_dir() else found


def test_every_class_of_results_files_and_its_replay_are_where_their_names_say():
    classes = {name: pkgutil.resolve_name(place) for name, place in FORMATS.items()}
    assert all(cls.format.name == name for name, cls in classes.items())
    for cls in classes.values():
        assert callable(pkgutil.resolve_name(cls.replayed_by))
    for function in (facts_of, summary, contradictions, differences):
        assert len({function.dispatch(cls) for cls in classes.values()}) == len(classes)
