"""The names that plug-ins import exist, and importing them loads only what they need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hpctrip import api


@pytest.mark.parametrize("name", api.__all__)
def test_a_name_is_that_of_its_module(name):
    assert getattr(api, name) is getattr(sys.modules[f"hpctrip.{api._MODULE_OF[name]}"], name)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(api.__file__).read_text())
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("hpctrip")
    ]
    seen = {alias.name: node.module.removeprefix("hpctrip.") for node in imports for alias in node.names}
    assert seen == api._MODULE_OF


def test_a_policy_loads_neither_torch_nor_mpi():
    code = "import sys; from hpctrip.api import Policy; print(*(m for m in ('torch', 'mpi4py') if m in sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "\n"
    )


def test_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError):
        from hpctrip.api import Nothing  # noqa: F401
