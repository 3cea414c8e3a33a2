"""Extreme numbers and names in every key and argument that takes one, as the registries and the command line list them:
a new component or command is covered by itself. They are accepted and computed with, or refused with exit code 2 and a
clear text.
"""

from __future__ import annotations

import functools
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import tomli_w
from fuzzing import PLAN, SMALL, SMALL_WORKLOADS, accepted_or_refused, hpctrip, many
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.app.experiment import Experiment
from hpctrip.base.component import Component, registry_of
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.study.file import StudyFile

Key = tuple[str, str, tuple[str, ...]]
"""Section, kind ("" where it has none), and the keys that lead to the value; a table of a kind is "objective zeus"."""

INTEGERS = [0, 1, 2, 7, 1000, 10**5, 10**7, 2**31, 2**32 + 1, 2**53, 2**63 - 1, 2**63, 2**64, 10**400]
FLOATS = [0.0, 0.5, 1.0, 5e-324, 1e-310, 1e-30, 1e-9, 1e9, 1e15, 1e30, 1e300]
NUMBERS = [sign * number for number in (*INTEGERS, *FLOATS) for sign in (1, -1)]
PLAUSIBLE = [0, 1, 2, 3, 7, 0.0, 0.25, 0.5, 1.0, 1e-30, 1e-9, 60.0, 3600.0, 1e6, 1e9, 1e30]
OTHERS = [float("nan"), float("inf"), -float("inf"), True, False, [], "", "auto", "none", "1e999 s", "-1e-320 s",
          "1e30 GB", "0 mi", "1e-30 ns", "9" * 5000 + " s", "1e20 Gbit/s", "1 W", "1e25 d"]  # fmt: skip


ROOTS = {"cluster": ClusterScenario, "study": StudyFile}
"""Of the other sorts of input."""


def _table_of(annotation: Any) -> tuple[type[Component] | None, str]:
    """(the class of a table, "[]" where there is a list of them)."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Component):
            return part, "" if part is annotation else "[]"
    return None, ""


def _takes(annotation: Any, types: tuple[type, ...]) -> bool:
    return annotation in types or any(_takes(part, types) for part in get_args(annotation))


def _keys_of(component: Any, types: tuple[type, ...]) -> Iterator[tuple[str, ...]]:
    """The keys of a component that take a value of these types, those of the tables in it too."""
    for name, field in component.model_fields.items():
        annotation, registry = field.annotation, registry_of(field)
        if registry is not None:
            for kind in sorted(registry):
                yield from ((f"{name} {kind}", *rest) for rest in _keys_of(registry[kind], types))
        elif (table := _table_of(annotation))[0]:
            yield from ((name + table[1], *rest) for rest in _keys_of(table[0], types))
        elif _takes(annotation, types):
            yield (name,)


@functools.cache
def all_keys(*types: Any, root: type[Component] = Experiment) -> list[Key]:
    """Every key of an input that takes a value of these types, also in a list."""
    root.model_rebuild(force=True)
    found: list[Key] = []
    for name, field in root.model_fields.items():
        registry = registry_of(field)
        if registry is not None:
            found += [
                (name, kind, keys) for kind in sorted(registry) for keys in _keys_of(registry[kind], types)
            ]
        elif (table := _table_of(field.annotation))[0]:
            found += [(name + table[1], "", keys) for keys in _keys_of(table[0], types)]
        elif _takes(field.annotation, types):
            found.append((name, "", ()))
    return found


def laid(tables: dict[str, Any], key: Key, value: Any) -> None:
    """Set the key, which makes its table one of its kind."""
    section, kind, names = key
    if not names:
        tables[section] = value
        return
    table = _table(tables, section)
    if kind and table.get("kind", "emnist" if section == "workload" else kind) != kind:
        table = tables[section] = dict(SMALL_WORKLOADS.get(kind, {}))
    if kind:
        table["kind"] = kind
    for name, _, inner in (name.partition(" ") for name in names[:-1]):
        table = _table(table, name)
        if inner and table.setdefault("kind", inner) != inner:
            table.clear()
            table["kind"] = inner
    table[names[-1]] = value


def _table(tables: dict[str, Any], name: str) -> Any:
    """The table of this name, or the first of a list of them."""
    if not name.endswith("[]"):
        return tables.setdefault(name, {})
    return tables.setdefault(name[:-2], [{}])[0]


WORK = ("workload", "train", "ranks", "compression")
"""Sections whose numbers ask for so much work: what a user may ask for is more than a test can wait for."""


@st.composite
def extreme_inputs(draw) -> tuple[dict[str, Any], bool]:
    """The small scenario with one or two extreme numbers, and whether a test can wait for what it asks for."""
    tables, brief = tomllib.loads(SMALL), True
    for _ in range(draw(st.integers(1, 2))):
        key = draw(st.sampled_from(all_keys(int, float)))
        value = draw(st.sampled_from(PLAUSIBLE) | st.sampled_from(NUMBERS + OTHERS))
        laid(tables, key, value)
        brief = brief and not (key[0] in WORK and type(value) in (int, float) and value > 100)
    return tables, brief


@many
@given(drawn=extreme_inputs())
def test_extreme_numbers(folder, drawn):
    tables, brief = drawn
    path = folder / "numbers.toml"
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    checked = accepted_or_refused("numbers", "check", path)
    if brief:
        planned = accepted_or_refused("planned numbers", *PLAN, path)
        if checked.code == 2:
            assert planned.code == 2, "what check refuses, nothing may accept"


@many
@given(drawn=extreme_inputs())
def test_runs_with_extreme_numbers(folder, drawn):
    tables, brief = drawn
    if not brief:
        return
    path, out = folder / "numbers.toml", folder / "numbers.h5"
    tables.setdefault("stop", {}).setdefault("max_rounds", 2)
    if type(tables["stop"]["max_rounds"]) is int:
        tables["stop"]["max_rounds"] = min(2, tables["stop"]["max_rounds"])
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    for file in folder.glob("numbers.h5*"):
        file.unlink()
    # training may diverge, and a job may ask to leave before its first round
    ended = accepted_or_refused("run numbers", "run", path, "--out", out, also=(3, 85))
    if ended.code == 0:
        checked = hpctrip("verify", out)
        assert checked.code == 0, (tables, checked)


SMALL_OTHERS = {
    "cluster": """
[cluster]
num_nodes = 2
[jobs]
num_jobs = 6
""",
    "study": """
name = "fuzz"
inputs = ["small.toml"]
seeds = [1]
[[axis]]
key = "train.lr"
values = [0.1, 0.2]
[[figure]]
name = "curves"
""",
}
READERS = {"cluster": ["cluster", "check"], "study": ["study", "--list"]}


@pytest.mark.parametrize("sort", ROOTS)
@many
@given(data=st.data())
def test_extreme_values_in_the_keys_of_other_inputs(folder, sort, data, monkeypatch):
    monkeypatch.chdir(folder)
    tables = tomllib.loads(SMALL_OTHERS[sort])
    for _ in range(data.draw(st.integers(1, 2))):
        types = data.draw(st.sampled_from([(int, float, Any), (str, Any)]))
        values = st.sampled_from(PLAUSIBLE + NUMBERS + OTHERS) if int in types else NAMES
        value = data.draw(values | st.sampled_from([["a", 1], {"a": 1}, [[1]]]))
        value = [value] if data.draw(st.booleans()) else value
        laid(tables, data.draw(st.sampled_from(all_keys(*types, root=ROOTS[sort]))), value)
    path = folder / f"other_{sort}.toml"
    path.write_bytes(tomli_w.dumps(tables).encode(errors="replace"))
    accepted_or_refused(f"{sort} values", *READERS[sort], path)


NAMES = st.one_of(
    st.sampled_from(
        ["", ".", "~", "~/", "~no_such_user_here/x", "a\0b", "x" * 255, "x" * 256, "ü" * 200, "a/" * 3000, "a/" * 1500,
         "\x1b[2J", "a\nb", "\u202egnp.toml", "\udcff", "*", "[", "**/*", "-", "--", "-o", "http://localhost/x",
         "small.toml/x", "x" * 100_000]
    ),
    st.text(max_size=300),
).filter(lambda name: ".." not in name and not name.startswith("/"))  # fmt: skip
"""Within the folder: whoever runs these tests may be allowed to replace anything."""


@many
@given(data=st.data())
def test_names_and_texts_in_every_key(folder, data, monkeypatch):
    monkeypatch.chdir(folder)
    tables = tomllib.loads(SMALL)
    key, name = data.draw(st.sampled_from(all_keys(str))), data.draw(NAMES)
    laid(tables, key, [name] if data.draw(st.booleans()) else name)
    path = folder / "names.toml"
    path.write_bytes(tomli_w.dumps(tables).encode(errors="replace"))
    accepted_or_refused("names", "check", path)
    accepted_or_refused("planned names", *PLAN, path)
    dotted = ".".join((key[2] and (key[0], *key[2])) or (key[0],))
    accepted_or_refused("-o names", "check", folder / "small.toml", "-o", f"{dotted}={name}")


@pytest.fixture(scope="module")
def sound(folder):
    """A results file."""
    path = folder / "sound.h5"
    assert hpctrip("run", folder / "small.toml", "--out", path, "-o", "stop.max_rounds=1").code == 0
    return path


COMMANDS = {
    "check": ["check", "NAME"],
    "plan": [*PLAN, "NAME"],
    "run": ["run", "SMALL", "NAME"],
    "run, the output": ["run", "SMALL", "--out", "NAME"],
    "run, a results file": ["run", "SMALL", "--out", "NAME.h5"],
    "run, to go on": ["run", "SMALL", "--resume", "--out", "NAME.h5"],
    "resume": ["resume", "NAME"],
    "resume, an input": ["resume", "SOUND", "NAME"],
    "resume, elsewhere": ["resume", "SOUND", "--out", "NAME.h5"],
    "prepare": ["prepare", "NAME"],
    "show": ["show", "NAME"],
    "watch": ["watch", "NAME"],
    "export": ["export", "NAME", "csv", "--overwrite"],
    "export, the folder": ["export", "SOUND", "NAME"],
    "verify": ["verify", "NAME"],
    "diff": ["diff", "NAME", "SOUND"],
    "merge": ["merge", "merged.h5", "NAME"],
    "merge, the target": ["merge", "NAME.h5", "SOUND"],
    "keys": ["keys", "NAME"],
    "retime": ["retime", "NAME"],
    "retime, elsewhere": ["retime", "SOUND", "--out", "NAME.h5"],
    "cluster": ["cluster", "NAME"],
    "cluster, the output": ["cluster", "-o", "jobs.num_jobs=2", "--out", "NAME.h5"],
    "cluster check": ["cluster", "check", "NAME"],
    "cluster fit": ["cluster", "fit", "NAME"],
    "cluster keys": ["cluster", "keys", "NAME"],
    "plot": ["plot", "NAME", "SOUND"],
    "plot, the runs": ["plot", "curves", "NAME"],
    "plot, the picture": ["plot", "curves", "SOUND", "--out", "NAME.png"],
    "plot, an option": ["plot", "league", "SOUND", "--baseline", "NAME"],
    "tune": ["tune", "SMALL", "--over", "NAME"],
    "tune, the folder": ["tune", "NAME"],
    "fetch": ["fetch", "NAME", "data"],
    "reference": ["reference", "NAME"],
    "inputs": ["inputs", "NAME"],
    "inputs, the folder": ["inputs", "smoke", "--to", "NAME"],
    "slurm": ["slurm", "NAME"],
    "slurm, a setting": ["slurm", "requeue", "--account", "NAME"],
    "slurm, the folder": ["slurm", "requeue", "--to", "NAME"],
    "study": ["study", "NAME", "--list"],
    "study, the folder": ["study", "fig09", "--small", "--list", "--only", "seed 1", "--out", "NAME"],
    "study, some": ["study", "fig09", "--small", "--list", "--only", "NAME"],
    "study, a ledger": ["study", "fig09", "--small", "--list", "--import", "NAME"],
    "claims": ["claims", "csv", "--study", "NAME"],
    "a command": ["NAME", "--no-such-option"],
    "an option": ["check", "-o", "NAME"],
}


@pytest.fixture
def emptied(tmp_path):
    """A folder whose contents are removed afterwards: 1,500 folders in each other are more than pytest can remove."""
    yield tmp_path
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


@many
@given(command=st.sampled_from(sorted(COMMANDS)), name=NAMES)
def test_names_in_every_argument(folder, emptied, sound, command, name, monkeypatch):
    monkeypatch.chdir(emptied)
    small = folder / "small.toml"
    words = {"NAME": name, "NAME.h5": f"{name}.h5", "SOUND": sound, "SMALL": small}
    accepted_or_refused("arguments", *(words.get(word, word) for word in COMMANDS[command]), also=(1,))


@many
@given(
    option=st.sampled_from(["--rounds", "-n", "--samples-per-second", "--gbit-per-second"]),
    value=st.sampled_from([str(value) for value in NUMBERS + OTHERS]),
)
def test_extreme_numbers_in_the_options_of_plan(folder, option, value):
    options = ["--rounds", 2, "--samples-per-second", 100]
    number = float(value) if value.replace(".", "").replace("e+", "").isdigit() else 0
    if option != "--rounds" or number < 1000:
        accepted_or_refused("plan's options", "plan", folder / "small.toml", *options, option, value)
