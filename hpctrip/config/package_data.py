"""Data files of the package: scenarios (inputs/), clusters (inputs/cluster/), studies (inputs/studies/), overlays for
real data (inputs/real/), worlds with their tables (inputs/worlds/), templates (inputs/new/) and batch scripts (slurm/).

They lie at the top of the repository; links in the package make them part of it, so that a wheel holds them too.
"""

from __future__ import annotations

import itertools
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath

from hpctrip.base.text import did_you_mean

SCENARIOS = ("inputs", ".toml")
CLUSTERS = ("inputs/cluster", ".toml")
OVERLAYS = ("inputs/real", ".toml")
WORLDS, TABLES = ("inputs/worlds", ".toml"), ("inputs/worlds", ".csv")
STUDIES = ("inputs/studies", ".toml")
SCRIPTS = ("slurm", ".sh")
TEMPLATES = {"input": "input.toml", "study": "study.toml", "policy": "policy.py", "workload": "workload.py"}
"""Files of inputs/new by what `hpctrip new` calls them; NAME stands for the name that the user gives."""


def shipped(kind: tuple[str, str]) -> dict[str, Traversable]:
    """{name: file} of the package's files of a kind, one of the pairs above."""
    folder, suffix = kind
    all_files = [file for file in files("hpctrip").joinpath(folder).iterdir() if file.name.endswith(suffix)]
    return {file.name.removesuffix(suffix): file for file in sorted(all_files, key=lambda file: file.name)}


def described(file: Traversable) -> str:
    """The first sentence of the comment at the head of a file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("# "))
    comment = itertools.takewhile(lambda line: line.startswith("# "), lines[start:])
    text = " ".join(line.removeprefix("# ") for line in comment)
    return re.match(r"(.*?[.:])(?= [A-Z]|$)|.*", text)[0]


def shipped_inputs() -> dict[str, Traversable]:
    """{name: file} of the input files of the package, as `hpctrip inputs` names them: NAME, cluster/NAME, real/NAME,
    worlds/NAME."""
    groups = {"": SCENARIOS, "cluster/": CLUSTERS, "real/": OVERLAYS, "worlds/": WORLDS}
    return {f"{group}{stem}": file for group, kind in groups.items() for stem, file in shipped(kind).items()}


def suggest_scenario(path: str) -> str:
    """A way out where a scenario file does not exist."""
    name = PurePath(path).stem
    if name in shipped(SCENARIOS):
        return f"use the scenario that comes with hpctrip by its name alone: {name}"
    near = did_you_mean(name, shipped_inputs())
    return f"{near} give the path of an input file, or a name that `hpctrip inputs` lists".lstrip()
