"""A study as an artifact: one folder with everything that it was made from and came to, for an appendix or an archive.

study.toml    axes, seeds and figures
inputs/       the input of every run, the plug-ins, and the files that inputs name (not the training data)
runs/         results files
tables/       the tables of the study, and commands.csv: what made every run, when, and in how many hours
figures/
environment.json, requirements.txt, README.md, SHA256SUMS
ro-crate-metadata.json   all of it as a Process Run Crate (https://w3id.org/ro/wfrun/process/0.5)
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tomli_w

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import json_text, named_path, unwritable
from hpctrip.config.identity import flat
from hpctrip.config.inputs import Tables, deep, nested
from hpctrip.config.plugins import with_code_paths
from hpctrip.config.values import Bare
from hpctrip.record.formats import csv_bytes
from hpctrip.record.writer import environment
from hpctrip.runner.experiment import Input
from hpctrip.runner.provenance import WORKLOAD, files_of_input
from hpctrip.studies.file import Axis
from hpctrip.studies.run_store import RunState
from hpctrip.studies.study import Study, opened
from hpctrip.studies.tables import made_with, wall_s

FILES, PLUGINS = "inputs/files", "inputs/plugins"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
PAPER = "https://arxiv.org/abs/2507.17904"
AUTHOR = re.compile(r"(?P<name>[^,<>]+)(, (?P<organization>[^<>]+?)( <(?P<url>https?://[^<>\s]+)>)?)?")
ABOUT_RUN = ("command", "folder", "num_ranks", "slurm_cluster", "slurm_job", "slurm_nodes")
"""Attributes of a run that are columns of commands.csv."""
README = """# {title}

{finished} of {planned} runs of the study `{name}`, with their inputs, tables, figures and environment, written by
hpctrip. All numbers of the tables come from the files in `runs/`.

    sha256sum -c SHA256SUMS                         # nothing has changed
    python -m hpctrip verify runs{files}{plugins}   # replay every decision and clock
    python -m hpctrip run inputs/IDENTITY.toml      # train one run again

Run these lines in this folder. `study.toml` has the axes, seeds and figures of the study.

`tables/commands.csv` has the command and the hours of every run, `environment.json` and `requirements.txt` the
software. Training data that inputs name are not part of the folder; `sources` in `tables/runs.csv` has their digests.
`ro-crate-metadata.json` describes all files ({profile}).
"""


def write_artifact(study: Study, folder: Path, author: str | None, terms: str | None) -> str:
    """Write the artifact of the finished runs of a study into a new folder. `author` and `terms` are explained at
    `_about`. Returns the line to print. Raises InputError if they cannot be read, the folder exists or cannot be
    written, or no run is finished."""
    about = _about(author, terms)
    if os.path.lexists(folder):
        raise InputError(str(folder), "exists already", "name a new folder")
    study.conclude()
    states = study.lines()
    finished = [replace(state, run=opened(state)) for state in states if state.finished]
    if not finished:
        raise InputError(f"study {study.name}", "has no finished run", "make its runs first")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
            made = Path(aside) / "artifact"
            _fill(made, study, states, finished, about)
            os.rename(made, folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    return f"artifact: {folder}, {len(finished)} of {len(states)} runs"


def _fill(
    folder: Path,
    study: Study,
    states: list[RunState],
    finished: list[RunState],
    about: dict[str, dict[str, Any]],
) -> None:
    for name in ("inputs", "runs", "tables"):
        (folder / name).mkdir(parents=True)
    for state in finished:
        (folder / "inputs" / f"{state.entry.identity}.toml").write_text(
            tomli_w.dumps(_copied_input(folder, state.entry.run_input))
        )
        assert state.file is not None  # the run is finished
        shutil.copy(state.file, folder / "runs")
    code = {plugin.path for state in finished for plugin in state.entry.run_input.extensions.plugins}
    names = sorted({Path(path).name for path in code})
    plugins = "".join(f" --plugin {shlex.quote(f'{PLUGINS}/{name}')}" for name in names)
    tables = study.file.model_dump(exclude_none=True, exclude_defaults=True)
    for axis, written in zip(study.file.axis, tables.get("axis", ()), strict=True):
        if axis.values:
            written["values"] = [_as_read(study, axis, value) for value in axis.values]
    (folder / "study.toml").write_text(tomli_w.dumps(tables))
    for file in [*study.folder.glob("*.csv"), study.folder / "table.md"]:
        shutil.copy(file, folder / "tables")
    if (study.folder / "figures").is_dir():
        shutil.copytree(study.folder / "figures", folder / "figures")
    commands = pd.DataFrame([_command(state) for state in finished])
    (folder / "tables/commands.csv").write_bytes(csv_bytes(commands))
    made_by = {
        "runs": sorted({made_with(state.run) for state in finished if state.run}),
        "here": environment(),
    }
    (folder / "environment.json").write_text(json_text(made_by))
    packages = sorted({f"{each.name}=={each.version}" for each in metadata.distributions()})
    (folder / "requirements.txt").write_text("\n".join(packages) + "\n")
    counts = {"finished": len(finished), "planned": len(states), "plugins": plugins}
    counts["files"] = f" --data {FILES}" if (folder / FILES).exists() else ""
    (folder / "README.md").write_text(
        README.format(title=study.title, name=study.file.name, profile=PROFILE, **counts)
    )
    crate = _crate(folder, study, finished, about)
    (folder / "ro-crate-metadata.json").write_text(json.dumps(crate, indent=1, ensure_ascii=False))
    sums = "".join(f"{_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in _files(folder))
    (folder / "SHA256SUMS").write_text(sums)


def _as_read(study: Study, axis: Axis, value: Any) -> Any:
    """A value of an axis: one of the command line as its runs have read it."""
    choice = axis.title, f"{axis.title} = {value}"
    made = (flat(entry.run_input.tables) for entry in study.entries if choice in entry.choices)
    return next(made)[axis.key or ""] if isinstance(value, Bare) else value


def _copied_input(folder: Path, run_input: Input) -> Tables:
    """The input of a run that works in the artifact: its plug-ins and files, but for training data, are copied there,
    and their paths lead to the copies, those of plug-ins from `inputs` and those of files from `folder`. Raises
    InputError if another file of this name is there."""
    for plugin in run_input.extensions.plugins:
        for path, code in {Path(plugin.path).name: plugin.code, **plugin.modules}.items():
            _put(folder / PLUGINS / path, code)
    tables = with_code_paths(run_input.tables, lambda path: f"plugins/{Path(path).name}")
    for named in files_of_input(run_input):
        if named.key.startswith(WORKLOAD):
            continue
        path = named_path(named.value, named.key).absolute()
        above = path.parent
        if not path.exists():  # a pattern: its folder keeps it apart from other files
            above = next(filter(os.path.exists, path.parents)).parent
        for file in named.find(str(path)):
            inside = file.relative_to(above) if file.is_relative_to(above) else file.name
            _put(folder / FILES / inside, file.read_bytes())
        if named.key in flat(tables):
            tables = deep(tables, nested(named.key, f"{FILES}/{path.relative_to(above).as_posix()}"))
    return tables


def _put(target: Path, content: bytes) -> None:
    if target.exists() and target.read_bytes() != content:
        raise InputError(target.name, "is the name of two different files of these runs", "rename one")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _command(state: RunState) -> dict[str, Any]:
    """The command of a run, its start, end and wall time; empty where an imported run lacks them."""
    assert state.run is not None
    meta = state.run.meta
    times = {"started_utc": meta["created_utc"], "ended_utc": meta["updated_utc"]}
    times |= {"wall_s": wall_s(state.run), "made_with": made_with(state.run)}
    about = {name: meta[name] for name in ABOUT_RUN}
    return {"identity": state.entry.identity, "run": state.entry.name} | times | about


def _about(author: str | None, terms: str | None) -> dict[str, dict[str, Any]]:
    """{property of the folder: what it refers to}: its license, author and publisher, from texts such as "CC-BY-4.0"
    and "Jane Doe, University of X <https://x.edu>". Raises InputError if a text cannot be read."""
    if not terms:
        stated = {"@id": "#license", "name": "no license", "description": "None is stated: ask the author."}
    elif re.fullmatch(r"https?://\S+|[\w.+-]+", terms, re.ASCII):
        address = terms if ":" in terms else f"https://spdx.org/licenses/{terms}"
        stated = {"@id": address, "name": terms, "description": f"The license of this folder: {address}"}
    else:
        raise InputError(
            f"--license {terms}", "is neither an SPDX identifier nor an address", "such as CC-BY-4.0"
        )
    about = {"license": stated | {"@type": "CreativeWork"}}
    if author is not None:
        who = AUTHOR.fullmatch(author)
        if who is None:
            form = 'write "NAME, ORGANIZATION <ADDRESS>", or the name alone'
            raise InputError(f"--author {author}", "cannot be read", form)
        about["author"] = {"@id": "#author", "@type": "Person", "name": who["name"]}
        if who["organization"]:
            employer = {
                "@id": who["url"] or "#organization",
                "@type": "Organization",
                "name": who["organization"],
            }
            about["publisher"] = employer | ({"url": who["url"]} if who["url"] else {})
            about["author"]["affiliation"] = {"@id": employer["@id"]}
    return about


def _crate(
    folder: Path, study: Study, finished: list[RunState], about: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The RO-Crate's metadata: the folder and what `about` says of it, its files, the programs, and every run as an
    action."""
    actions, programs = [], {}
    for state in finished:
        facts = _command(state)
        assert state.file is not None
        program = {"@id": f"{PAPER}#{facts['made_with'].replace(' ', '-')}", "@type": "SoftwareApplication"}
        program |= {"name": "hpctrip", "url": PAPER, "softwareVersion": facts["made_with"]}
        programs[facts["made_with"]] = program
        times = {"startTime": facts["started_utc"], "endTime": facts["ended_utc"]}
        actions.append(
            {
                "@id": f"#{state.entry.identity}",
                "@type": "CreateAction",
                "name": state.entry.name,
                "description": facts["command"] or "a run taken up from elsewhere",
                "actionStatus": "http://schema.org/CompletedActionStatus",
                "instrument": {"@id": program["@id"]},
                "object": {"@id": f"inputs/{state.entry.identity}.toml"},
                "result": {"@id": f"runs/{state.file.name}"},
            }
            | {name: time for name, time in times.items() if time}
            | ({"agent": {"@id": "#author"}} if "author" in about else {})
        )
    files = [
        {
            "@id": quote(file.relative_to(folder).as_posix()),
            "@type": "File",
            "contentSize": str(file.stat().st_size),
            "encodingFormat": mimetypes.guess_type(file.name)[0] or "application/octet-stream",
            "sha256": _sha256(file),
        }
        for file in _files(folder)
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": {"@id": PROFILE},
        "name": study.title,
        "description": f"{len(finished)} runs of the study {study.file.name}",
        "datePublished": datetime.now(UTC).isoformat(timespec="seconds"),
        "hasPart": _references(files),
        "mentions": _references(actions),
    } | {name: {"@id": entity["@id"]} for name, entity in about.items()}
    standard = {"conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"}, "about": {"@id": "./"}}
    descriptor = {"@id": "ro-crate-metadata.json", "@type": "CreativeWork"} | standard
    profile = {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    graph = [descriptor, root, profile, *about.values(), *programs.values(), *actions, *files]
    return {"@context": CONTEXT, "@graph": graph}


def _references(entities: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": entity["@id"]} for entity in entities]


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
