"""Reads the tables that a study has written: runs.csv, curves.csv, sites.csv, and its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.config.identity import VERSION
from hpctrip.record.reader import Run
from hpctrip.studies.imported import curve_of, run_of_curve

FINISHED = "finished"
POWER = ("production", "renewable")
"""Names of overlays (inputs/real) that give the sites other power than the study's own."""
_SETTING = "input."


@dataclass(frozen=True)
class Study:
    """A study as its tables describe it."""

    folder: Path
    table: Table
    """runs.csv: a row per run of the grid, [R]."""
    finished: dict[int, Run]
    """{row: the run}. Attributes, curve, and sites if they are known."""

    def text(self, column: str) -> str:
        """The text of a column that is the same for all runs: `study`, `title`, `overlays`, `folder`."""
        return self.table.column(column)[0]

    @property
    def name(self) -> str:
        """Name of the study, followed by the power that was laid over it: fig12, fig12_production."""
        power = [Path(file).stem for file in self.text("overlays").split(", ") if Path(file).stem in POWER]
        return "_".join([self.text("study"), *power])

    @property
    def variants(self) -> dict[str, list[Run]]:
        """{variant: its finished runs}."""
        variants: dict[str, list[Run]] = {}
        for row, run in self.finished.items():
            variants.setdefault(self.table.columns["variant"][row], []).append(run)
        return variants

    def settings(self, key: str) -> list[str]:
        """The different values of an input key among the finished runs; empty if none has it."""
        column = self.table.columns.get(f"{_SETTING}{key}", ())
        return [value for value in dict.fromkeys(column[row] for row in self.finished if column) if value]

    @property
    def pictures(self) -> dict[str, Path]:
        """{name, unique among all studies: PNG file} of its figures, which have their numbers beside them."""
        files = sorted((self.folder / "figures").glob("*.png")) if self.finished else []
        prefix = self.text("folder").replace("/", "_")
        return {f"{prefix}_{file.name}": file for file in files if file.with_suffix(".csv").exists()}


def read_studies(paths: Sequence[str]) -> list[Study]:
    """The studies in these folders, or in those below them. Raises InputError if there are none, or two of one name."""
    studies = [read_study(folder) for path in paths for folder in _study_folders(Path(path))]
    names = [study.name for study in studies]
    if twice := next((study for study in studies if names.count(study.name) > 1), None):
        raise InputError(str(twice.folder), f"is one of two studies {twice.name!r}", "name one of them")
    return studies


def _study_folders(path: Path) -> Iterator[Path]:
    tables = [path / "runs.csv"] if (path / "runs.csv").exists() else sorted(path.rglob("runs.csv"))
    if not tables:
        problem = "no such folder" if not path.is_dir() else "holds no study that has ended (no runs.csv)"
        raise InputError(str(path), problem, "name the folder of a study, such as results/studies/fig09")
    yield from (table.parent for table in tables)


def read_study(folder: Path) -> Study:
    """The study in a folder. Raises InputError if its tables cannot be read."""
    table, curves = read_table(folder / "runs.csv"), read_table(folder / "curves.csv")
    all_sites = read_table(folder / "sites.csv")
    sites = pd.DataFrame({name: all_sites.numbers(name, may_lack=True) for name in [*all_sites.columns][1:]})
    site_of = np.array(all_sites.column("identity"))
    columns = "variant", "target_accuracy", "time_to_accuracy_s"
    finished = {
        row: replace(run, sites=sites[site_of == table.columns["identity"][row]])
        for row, run in _finished(table, curves, *columns).items()
    }
    return Study(folder, table, finished)


def read_kept(folder: Path, study: str = "*") -> dict[str, dict[str, list[Run]]]:
    """{study: {variant: its finished runs}} of the ledgers NAME.csv with curves NAME_curves.csv in a folder, or of the
    one that is named. Sites are known where NAME_sites.csv has those of a run."""
    evidence = {}
    for curves in sorted(folder.glob(f"{study}_curves.csv")):
        name = curves.name.removesuffix("_curves.csv")
        table = read_table(folder / f"{name}.csv")
        finished = _finished(table, read_table(curves), "run", "target_accuracy", "clock_s")
        if (sites := folder / f"{name}_sites.csv").exists():
            columns = read_table(sites)
            sites_of_all = pd.DataFrame({key: columns.numbers(key) for key in columns.columns})
            finished = {row: replace(run, sites=sites_of_all) for row, run in finished.items()}
        variants: dict[str, list[Run]] = {}
        for row, run in finished.items():
            label = table.columns["run"][row].rpartition(", seed ")[0]
            variants.setdefault(label, []).append(replace(run, path=folder / f"{name}.csv"))
        evidence[name] = variants
    return evidence


def _finished(table: Table, curves: Table, label: str, target: str, time: str) -> dict[int, Run]:
    """{row: run} of the finished runs of a table, the names of whose columns are given, with their curves. Rows that
    earlier rules made are left out."""
    curve = curve_of(curves)
    curve_of_run = dict(iter(curve.groupby(np.array(curves.column("identity")))))
    targets, times_s = (table.numbers(name, may_lack=True) for name in (target, time))
    seeds, finished = table.integers("seed"), {}
    versions = table.columns.get("identity_version", [str(VERSION)] * len(seeds))
    for row, status in enumerate(table.column("status")):
        if status == FINISHED and versions[row] == str(VERSION):
            synthetic = table.column("synthetic")[row]
            meta = {
                "seed": int(seeds[row]),
                "label": table.column(label)[row],
                "target_accuracy": float(targets[row]),
                "time_to_accuracy_s": float(times_s[row]),
                "synthetic_data": "data" in synthetic,
                "synthetic_power": "power" in synthetic,
            }
            own = curve_of_run.get(table.columns["identity"][row], curve[:0]).reset_index(drop=True)
            finished[row] = run_of_curve(Path(table.place), meta, own, {})
    return finished
