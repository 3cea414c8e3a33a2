"""Builds the page of claims from the finished runs of the paper's studies, their settings and their pictures."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file
from hpctrip.config.identity import flat
from hpctrip.config.inputs import resolved
from hpctrip.record.reader import Run
from hpctrip.studies import RESULTS
from hpctrip.studies.claims import PAPER
from hpctrip.studies.claims.page import Page, Section
from hpctrip.studies.claims.paper import CLAIMS
from hpctrip.studies.ledger import Line
from hpctrip.studies.pictures import paths, with_study_label
from hpctrip.studies.studies import Study, StudyOptions, read_studies, study_file

CONSTANTS = (
    "timing.clock",
    "timing.seconds_per_sample",
    "network.near_bandwidth_bps",
    "network.bandwidth_law",
    "workload.data",
    "workload.train_samples",
    "partition.kind",
    "partition.alpha",
    "train.lr",
    "train.local_epochs",
    "power.path",
    "policy.gain",
    "policy.score",
    "policy.search",
    "stop.target_accuracy",
)
"""Keys that the paper does not state, or states in words only; the page shows their values."""
_PNG = b"\x89PNG\r\n\x1a\n"
MOST_VALUES = 3
"""Maximum number of values of a constant within a study that the page lists one by one."""


def claims_page(options: StudyOptions, including: str = PAPER) -> Page:
    """The page of claims, from the studies that the study file or name `including` includes. Raises InputError if a
    study or a results file cannot be used."""
    studies = read_studies(study_file(including), options)
    names, claimed = [study.file.name for study in studies], sorted({claim.study for claim in CLAIMS})
    if not set(names) & set(claimed):
        raise InputError(
            including, "includes no study that a claim speaks of", f"include some of {', '.join(claimed)}"
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            including,
            f"includes two studies {twice[0]!r}",
            "a claim speaks of one: ask of a file with one of them",
        )
    lines = {study.file.name: [line for line in study.ledger.lines() if line.finished] for study in studies}
    evidence = {study.file.name: dict(_variants(study, lines[study.file.name])) for study in studies}
    findings = [(claim, claim.finding(evidence)) for claim in CLAIMS]
    constants = {study.file.name: _constants(lines[study.file.name]) for study in studies}
    shared = _shared([of_study for of_study in constants.values() if of_study])
    sections = [
        Section(
            f"{study.title} (study {study.file.name})",
            [
                *_facts(
                    study, lines[study.file.name], dict(constants[study.file.name].items() - shared.items())
                )
            ],
            _pictures(study) if lines[study.file.name] else {},
        )
        for study in studies
    ]
    alike = [f"in all studies: {_settings(shared)}"] if shared else []
    return Page(findings, [*alike, *_commands(including, options)], sections)


def _variants(study: Study, finished: Sequence[Line]) -> Iterator[tuple[str, list[Run]]]:
    """(label, finished runs) of every variant that has finished runs."""
    for label in dict.fromkeys(line.entry.variant for line in finished):
        same = [line.entry for line in finished if line.entry.variant == label]
        yield label, [with_study_label(study.ledger.runs.read(entry), entry, label) for entry in same]


def _constants(finished: Sequence[Line]) -> dict[str, str]:
    """{key: value} of the runs of one study, resolved with defaults; keys that no run has are absent."""
    inputs = [flat(resolved(line.entry.run_input.experiment)) for line in finished]
    constants = {}
    for key in CONSTANTS:
        values = [*dict.fromkeys(str(settings[key]) for settings in inputs if settings.get(key) is not None)]
        if values:
            constants[key] = " or ".join(values) if len(values) <= MOST_VALUES else "varied"
    return constants


def _shared(all_constants: Sequence[dict[str, str]]) -> dict[str, str]:
    """Constants with the same value in every study."""
    first = all_constants[0] if all_constants else {}
    return {key: value for key, value in first.items() if all(one.get(key) == value for one in all_constants)}


def _settings(constants: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {constants[key]}" for key in CONSTANTS if key in constants)


def _facts(study: Study, finished: Sequence[Line], own: Mapping[str, str]) -> Iterator[str]:
    """Facts about one study; `own` are the constants that not all studies share."""
    yield f"{len(finished)} of {len(study.ledger.entries)} runs finished"
    if study.file.overlays:
        yield f"laid over its inputs: {', '.join(Path(file).name for file in study.file.overlays)}"
    if finished:
        yield "; ".join([*_synthetic(finished)]) or "real data and power"
    if own:
        yield _settings(own)


def _synthetic(finished: Sequence[Line]) -> Iterator[str]:
    """The synthetic inputs of a study, each with its variants unless all have it."""
    all_variants = {line.entry.variant for line in finished}
    for part in ("data", "power"):
        variants = dict.fromkeys(
            line.entry.variant
            for line in finished
            if line.stored.run is not None and line.stored.run.meta[f"synthetic_{part}"]
        )
        if variants:
            some = "" if {*variants} == all_variants else f" ({', '.join(variants)})"
            yield f"synthetic {part}{some}"


def _pictures(study: Study) -> dict[str, bytes]:
    """{name, unique among all studies: PNG} of the figures of a study.

    The page embeds these files, so anything but a regular PNG file raises InputError.
    """
    name = study.ledger.name.replace("/", "_")
    pictures = {}
    readings = [study.readings_picture] if study.file.readings else []
    for file in sorted([*paths(study.file.figure, study.ledger.folder), *readings]):
        if not os.path.lexists(file):
            continue
        png = read_file(file)
        if not png.startswith(_PNG):
            raise InputError(
                str(file), "is not a PNG picture, as its name says", "remove it, or draw it again"
            )
        pictures[f"{name}_{file.name}"] = png
    return pictures


def _commands(including: str, options: StudyOptions) -> Iterator[str]:
    """Facts with the commands that repeat the studies and the page, without default options."""
    folder = [] if options.folder == Path(RESULTS) else [str(options.folder)]
    out = ["--out", *folder] if folder else []
    yield f"repeat the studies: {_command('study', including, *options.arguments, *out)}"
    study = [] if including == PAPER else ["--study", including]
    yield f"repeat this page: {_command('claims', *folder, *study, *options.arguments)}"


def _command(*words: str) -> str:
    return shlex.join(["python", "-m", "hpctrip", *words])
