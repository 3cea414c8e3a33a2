"""Modules that lie beside a plug-in are read with it, belong to its digest, and are its own."""

import os
import sys

import numpy as np
import pytest

from hpctrip.base.errors import InputError, blame
from hpctrip.config.beside import modules_beside
from hpctrip.config.plugins import Extensions, Plugin, named_code


@pytest.fixture
def write(tmp_path, monkeypatch):
    """`write({path: code})`: files in the working folder."""
    monkeypatch.chdir(tmp_path)

    def files(texts):
        for path, text in texts.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

    return files


def run(*paths):
    """Read and run plug-ins; the function `f` of the first."""
    Extensions(tuple(map(Plugin.read, paths))).run()
    return named_code(f"{paths[0]}:f", "workload.model")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("import one", {"one.py", "deep.py"}),
        ("from one import two as three", {"one.py", "deep.py"}),
        ("def f():\n    if f:\n        import lib.acts", {"lib/__init__.py", "lib/acts.py", "lib/more.py"}),
        ("from lib import acts", {"lib/__init__.py", "lib/acts.py", "lib/more.py"}),
        ("from bare.inner import x", {"bare/__init__.py", "bare/inner.py"}),
        ("import json, torch, hpctrip.api, nothing, bare", set()),
        ("import one, (", set()),
    ],
)
def test_import_statements_tell_which_modules_belong_to_a_plug_in(statement, found, write):
    code = {
        "one": "import deep\ntwo = 2",
        "deep": "import one",
        "lib/__init__": "",
        "json": "",
        "hpctrip": "",
    }
    code |= {"lib/acts": "from . import more", "lib/more": "from .. import one", "bare/inner": "x = 1"}
    write({f"{name}.py": text for name, text in code.items()} | {"torch/weights.txt": ""})
    write({"plug.py": statement})
    assert modules_beside("plug.py", statement.encode()).keys() == found


def test_a_digest_holds_the_modules_and_is_the_files_own_without_any(write):
    write({"a.py": "import one", "alone.py": "x = 1", "one.py": "x = 1", "noted.py": "y = 1"})
    before = {name: Plugin.read(f"{name}.py").source.digest for name in ("a", "alone")}
    write({"one.py": "x = 2", "noted.py": "y = 2"})
    after = {name: Plugin.read(f"{name}.py").source.digest for name in ("a", "alone")}
    assert before["a"] != after["a"] and before["alone"] == after["alone"] != after["a"]


LATE = (
    "from one import x\n\ndef f():\n    import lib.acts\n    from one import y\n    return x, y, lib.acts.z\n"
)


def test_every_plug_in_has_the_modules_that_were_read_with_it(write):
    """Files of one name in two folders are two modules, also for an import inside a function that is called later."""
    for folder, number in (("a", 1), ("b", 2)):
        texts = {"plug.py": LATE, "one.py": f"x = y = {number}", "lib/acts.py": "from one import x as z"}
        write({f"{folder}/{path}": text for path, text in texts.items()})
    read = [Plugin.read(f"{folder}/plug.py") for folder in "ab"]
    write({"a/one.py": "x = y = 3"})
    modules, search_path = {*sys.modules}, [*sys.path]
    Extensions(tuple(read)).run()
    functions = [named_code(f"{folder}/plug.py:f", "workload.model") for folder in "ab"]
    assert [function() for function in functions] == [(1, 1, 1), (2, 2, 2)]
    assert {name.split("_")[0] for name in {*sys.modules} - modules} == {
        "hpctrip"
    } and sys.path == search_path
    assert run("a/plug.py")() == (3, 3, 3)


def test_plug_ins_of_one_folder_share_a_module(write):
    write({"one.py": "x = []", "plug.py": "def f():\n    from one import x\n    return x"})
    write({"other.py": "import one\none.x.append(1)"})
    assert run("plug.py", "other.py")() == [1] and run("plug.py")() == []


def test_an_error_in_a_module_beside_a_plug_in_is_the_plug_ins(write):
    write({"one.py": "def g():\n    return 1 / 0", "plug.py": "from one import g as f"})
    with pytest.raises(ZeroDivisionError) as error:
        run("plug.py")()
    assert "one.py, line 2, in g" in blame(error.value)[0]


ADDED = "import os, sys\nsys.path.insert(0, os.path.abspath('lib'))"


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import here", "No module named 'here'; a plug-in imports modules that lie beside it"),
        ("import importlib\nimportlib.import_module('here')", "No module named 'here'; a plug-in imports"),
        (f"{ADDED}\nimport there", "No module named 'there'; a plug-in imports modules that lie beside it"),
        (f"{ADDED}\ndef f():\n    import there", "No module named 'there'"),
    ],
)
@pytest.mark.parametrize("python_m", [False, True])
def test_code_that_no_digest_holds_is_refused(code, complaint, python_m, write, monkeypatch):
    """However hpctrip was started: `python -m` puts the working folder in the search path."""
    write({"plugs/plug.py": code, "here.py": "", "lib/there.py": ""})
    monkeypatch.setattr(sys, "path", [*([os.getcwd(), ""] if python_m else []), *sys.path])
    before = [*sys.path]
    with pytest.raises((InputError, ModuleNotFoundError), match=complaint):
        run("plugs/plug.py")()
    assert sys.path == before and not {"here", "there"} & sys.modules.keys()


def test_code_is_found_by_its_whole_file_name_and_the_end_of_its_path(write):
    for path in ("lone_big.py", "lone.py", "a/lone.py", "b/lone.py", "lone_0a1b2c3d.py"):
        write({f"new/{path}": f"def f():\n    return {path!r}"})
    Extensions(tuple(Plugin.read(f"new/{path}") for path in ("lone_big.py", "lone_0a1b2c3d.py"))).run()
    with pytest.raises(InputError, match="was not named as a plug-in"):
        named_code("old/lone.py:f", "workload.model")
    Extensions(tuple(Plugin.read(f"new/{path}") for path in ("lone.py", "a/lone.py", "b/lone.py"))).run()
    for path in ("a/lone.py", "b/lone.py", "lone.py"):
        ran = "b/lone.py" if path == "lone.py" else path  # the last of those that end alike
        assert named_code(f"old/{path}:f", "workload.model")() == ran


def test_a_plug_in_that_changes_numpys_errors_changes_them_for_itself(write):
    before = np.geterr()
    write(
        {
            "plug.py": "import numpy\nnumpy.seterr(all='raise')\nraised = numpy.geterr()\ndef f():\n    return raised"
        }
    )
    assert run("plug.py")()["divide"] == "raise" and np.geterr() == before
