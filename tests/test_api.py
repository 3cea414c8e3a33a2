"""The names that plug-ins import exist, and importing them loads only what they need."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hpctrip
from hpctrip import api


def test_all_names_that_it_imports_are_offered():
    """Type checkers refuse any other."""
    imports = [
        node
        for node in ast.walk(ast.parse(Path(api.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    assert sorted(alias.name for node in imports for alias in node.names) == sorted(api.__all__)


@pytest.mark.parametrize("module", [api, hpctrip])
def test_public_functions_and_methods_are_typed(module):
    for name in module.__all__:
        offered = getattr(module, name)
        members = vars(offered).values() if inspect.isclass(offered) else [offered]
        for function in filter(inspect.isfunction, members):
            wanted = {*inspect.signature(function).parameters, "return"} - {"self", "cls"}
            if not function.__name__.startswith("_"):
                assert wanted <= function.__annotations__.keys(), function.__qualname__


def test_a_policy_loads_neither_torch_nor_mpi():
    code = "import sys; from hpctrip.api import Policy; print(*(m for m in ('torch', 'mpi4py') if m in sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "\n"
    )


def test_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError):
        from hpctrip.api import Nothing  # noqa: F401
