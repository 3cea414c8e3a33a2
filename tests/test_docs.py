"""What README promises exists and works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from hpctrip.sim.policies import POLICIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "hpctrip" / "DESIGN.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS = [
    shlex.split(command)
    for line in README.splitlines()
    for command in re.split(r"&&|  #|`", line)
    if "python -m hpctrip " in command
]
"""Every command line of hpctrip in README, in words."""


def test_readme_opens_with_the_two_commands():
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2 and all(len(block.splitlines()) == 1 for block in blocks)
    assert "python -m hpctrip" in blocks[0] and blocks[1].strip().endswith("pytest")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with README's policy in nearest.py, and inputs/."""
    monkeypatch.setattr(POLICIES, "_classes", dict(POLICIES._classes))  # what plug-ins register is forgotten
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "POLICIES.add" in b]
    (tmp_path / "nearest.py").write_text(block)
    (tmp_path / "inputs").symlink_to(ROOT / "inputs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_of_readme_is_understood(words, folder):
    """Parsed, not run: the options and arguments exist, and where there are input files, they are valid."""
    from hpctrip.__main__ import cli
    from hpctrip.app.experiment import read_input

    args = words[words.index("hpctrip") + 1 :]
    name, rest = (args[0], args[1:]) if args and args[0] in cli.commands else ("run", args)
    with cli.commands[name].make_context(name, rest) as context:
        if name in ("run", "check") and "FILE" not in rest:
            read_input(*(context.params[given] for given in ("paths", "overrides", "plugins")))


def test_the_policy_in_readme_runs(folder, trained):
    run = trained("plugins=['nearest.py']", "policy.kind=nearest", "policy.k=3")
    assert run.rounds["num_sites"].tolist() == [3] * 3


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if path.exists()], ids=lambda path: path.name
)
def test_every_file_that_a_document_names_exists(document):
    text = document.read_text()
    named = set(
        re.findall(
            r"\b(?:inputs|slurm|postprocess|tests|benchmarks|traces)/[\w/]+\.(?:py|toml|sh|md)\b", text
        )
    )
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing


@pytest.mark.parametrize(
    "row", re.findall(r"^\| `\[.*", README, re.MULTILINE), ids=lambda row: row.split("`")[1]
)
def test_the_kinds_and_keys_in_readmes_table_exist(row):
    from hpctrip.app.experiment import Experiment
    from hpctrip.base.component import registry_of

    tables, names = row.split("|")[1:3]
    known = set()
    for table in re.findall(r"\[(\w+)\]", tables):
        field = Experiment.model_fields[table]
        registry = registry_of(field) or {}
        classes = registry.values() or [field.annotation]
        known |= {*registry, *(key for cls in classes for key in cls.model_fields)}
        known |= {
            value
            for cls in classes
            for key in cls.model_fields.values()
            for value in get_args(key.annotation)
        }
    assert set(re.findall(r"`([\w-]+)`", names)) <= known
