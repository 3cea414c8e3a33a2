"""CONTRIBUTING's recipes work to the letter, in a copy of the source tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = re.findall(
    r'^```(?:python|text) title="(.+?)"\n(.*?)^```',
    (ROOT / "CONTRIBUTING.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
CONTRACTS = {
    "tests/sim/test_policies.py": "nearest",
    "tests/sim/test_power.py": "ramp",
    "tests/sim/test_network.py": "every_kind and uniform",
    "tests/figures/test_plot.py": "never_evaluated and arrivals",
    "tests/test_layers.py": "stay_small or lower_layer",
    "tests/config/test_new_keys.py": "every_new_key",
}
"""{file of contract tests: what chooses those of the new component}."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree, with the new components."""
    tree = tmp_path_factory.mktemp("recipes")
    for name in ("hpctrip", "tests", "inputs", "slurm"):
        junk = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=junk)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for name, text in RECIPES:
        path = tree / (name if name.startswith("tests") else f"hpctrip/{name}")
        if path.suffix == ".txt":
            path.write_text("\n".join(sorted((path.read_text() + text).split())))
            continue
        with path.open("a") as file:
            file.write(f"\n\n{text}" if file.tell() else text)
    return tree


def python(tree, *words):
    """What `python WORDS` prints in the copy; every error fails."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    words = [sys.executable, *words]
    ended = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_what_is_added_by_the_recipes_is_run_and_drawn(tree):
    assert len(RECIPES) == 5
    kinds = (
        "policy={kind='nearest',k=3}",
        "power.kind=ramp",
        "network={kind='uniform'}",
        "stop.max_rounds=2",
    )
    lines = [word for line in kinds for word in ("-o", line)]
    commands = [
        ["run", "smoke", *lines, "--out", "run.h5"],
        ["plot", "arrivals", "run.h5"],
        ["show", "run.h5"],
    ]
    code = "from hpctrip.cli.main import cli\n" + "".join(
        f"cli({words}, standalone_mode=False)\n" for words in commands
    )
    printed = python(tree, "-c", code)
    assert "6 updates arrived" in printed and re.search("^policy .*nearest", printed, re.MULTILINE)


def test_the_contract_tests_cover_it_without_a_change(tree):
    """In one process; each file has its own tests chosen."""
    chosen = " or ".join(f"({Path(file).stem} and ({words}))" for file, words in CONTRACTS.items())
    printed = python(tree, "-m", "pytest", "-q", "-n", "0", "-rp", *CONTRACTS, "-k", chosen)
    assert {*re.findall(r"^PASSED (.+?)::", printed, re.MULTILINE)} == CONTRACTS.keys()
