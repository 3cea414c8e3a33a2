"""Data files of the package: scenarios (inputs/), clusters (inputs/cluster/), studies (inputs/studies/), overlays for
real data (inputs/real/) and batch scripts (slurm/).

They lie at the top of the repository; links in the package make them part of it, so that a wheel holds them too.
"""

from __future__ import annotations

import itertools
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath

SCENARIOS = ("inputs", ".toml")
CLUSTERS = ("inputs/cluster", ".toml")
OVERLAYS = ("inputs/real", ".toml")
STUDIES = ("inputs/studies", ".toml")
SCRIPTS = ("slurm", ".sh")


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


def suggest_scenario(path: str) -> str:
    """A way out where a scenario file does not exist."""
    name, folder = PurePath(path).stem, PurePath(path).parent
    if name in shipped(SCENARIOS):
        return f"`hpctrip inputs {name} --to {folder}` copies the scenario of that name"
    return "give the path of a TOML input file; `hpctrip inputs` lists the scenarios that come with hpctrip"
