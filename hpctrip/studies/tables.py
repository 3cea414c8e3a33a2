"""Tables of a study: the comparison of its variants, and tidy tables of its runs.

runs.csv, curves.csv and sites.csv have one row per run, round and site, and name runs by their identity. Claims, fits
and figures of one's own can be made from them when the study has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import replace_file
from hpctrip.base.stats import Estimate, Times, compare
from hpctrip.base.text import aligned, markdown_table
from hpctrip.config.identity import flat
from hpctrip.config.inputs import resolved
from hpctrip.figures.common.grouping import times_of
from hpctrip.record.merge import csv_bytes, setting_text
from hpctrip.record.reader import Run
from hpctrip.studies.imported import CURVE_COLUMNS, TOTALS, curve_of
from hpctrip.studies.run_store import RunState


def write_tables(folder: Path, facts: Mapping[str, str], lines: Sequence[RunState]) -> list[str]:
    """Write all tables of a study. `facts` are columns with the same text for all runs, its title among them; finished
    `lines` have their run. Returns the lines to print."""
    runs = {line.entry.identity: line.run for line in lines if line.finished and line.run}
    cells, numbers = zip(*_variants(lines), strict=True)
    curves = {name: run.rounds[list(CURVE_COLUMNS)] for name, run in runs.items()}
    sites = {name: run.sites for name, run in runs.items() if not run.sites.empty}  # imported runs have none
    if any(map(_is_text, sites.values())):
        sites = {name: _as_text(frame) for name, frame in sites.items()}
    tables = {
        "table.csv": pd.DataFrame(numbers),
        "runs.csv": _without_gaps(pd.DataFrame([{**facts, **_row(line)} for line in lines])),
        "curves.csv": _concat(curves, CURVE_COLUMNS),
        "sites.csv": _concat(sites, ("site",)),
    }
    for name, table in tables.items():
        replace_file(folder / name, csv_bytes(table))
    head = _head(lines)
    page = f"# {facts['title']}\n\n{markdown_table(head, cells)}\n"
    replace_file(folder / "table.md", page.encode())
    return [
        facts["title"],
        *aligned(head, cells),
        f"table: {folder / 'table.csv'}, {folder / 'table.md'}",
        f"runs, curves, sites: {folder / 'runs.csv'}, {folder / 'curves.csv'}, {folder / 'sites.csv'}",
    ]


def read_tables(folder: Path) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """{identity: (curve, sites as texts)} of the runs in the tables of a study; empty if they cannot be read."""
    try:
        curves, sites = read_table(folder / "curves.csv"), read_table(folder / "sites.csv")
        rounds, identities = curve_of(curves), curves.column("identity")
    except InputError:
        return {}
    by_run = pd.DataFrame(sites.columns).groupby("identity", sort=False)
    of_run = {str(identity): rows.drop(columns="identity") for identity, rows in by_run}
    return {
        str(identity): (curve.reset_index(drop=True), of_run.get(str(identity), pd.DataFrame()))
        for identity, curve in rounds.groupby(np.array(identities), sort=False)
    }


def latex_lines(title: str, lines: Sequence[RunState]) -> list[str]:
    """The comparison of the variants as a table for LaTeX with the package booktabs, below its title as a comment."""
    cells = pd.DataFrame([cells for cells, _ in _variants(lines)], columns=_head(lines))
    table = cells.to_latex(index=False, escape=True, column_format=f"l{'r' * (len(HEAD) - 1)}")
    return [f"% {title}", *table.replace("> ", "$>$ ").splitlines()]  # > is another sign in some fonts


def results_of(run: Run | None) -> dict[str, Any]:
    """The results of a run as columns of tables; empty or NaN before its first round. `clock_s` is the simulated time
    at the end."""
    results: dict[str, Any] = dict.fromkeys(("num_rounds", "params_digest", "synthetic", "made_with"), "")
    results |= dict.fromkeys(("clock_s", "time_to_accuracy_s", "best_accuracy", "wall_s"), math.nan)
    results |= dict.fromkeys(TOTALS, math.nan)
    if run is not None and len(run.rounds):
        results = {
            "num_rounds": str(len(run.rounds)),
            "clock_s": float(run.rounds["clock_s"].iloc[-1]),
            "time_to_accuracy_s": run.time_to_accuracy_s,
            "best_accuracy": float(run.rounds["accuracy"].max()),
            "params_digest": run.meta["params_digest"],
            "wall_s": wall_s(run),
            **{name: _total(run, name) for name in TOTALS},
            "synthetic": ", ".join(name for name in ("data", "power") if run.meta[f"synthetic_{name}"]),
            "made_with": made_with(run),
        }
    return results


def _total(run: Run, name: str) -> float:
    """One of `TOTALS`: the sum over all rounds; NaN where it is unknown in one of them."""
    column, unit = TOTALS[name]
    if column in run.rounds:
        return float(run.rounds[column].sum(skipna=False)) / unit
    return float(run.meta.get(name, math.nan))


def wall_s(run: Run) -> float:
    """Sum of the wall times of all rounds, in seconds."""
    return float(run.meta["wall_s"] if "wall_s" in run.meta else run.rounds["wall_s"].sum())


def made_with(run: Run) -> str:
    """The version and commit of hpctrip that made a run."""
    if "made_with" in run.meta:
        return str(run.meta["made_with"])
    commit = f" {run.meta['git_commit'][:12]}" if run.meta["git_commit"] else ""
    return f"hpctrip {run.meta['hpctrip_version']}{commit}"


def _row(line: RunState) -> dict[str, Any]:
    entry, experiment = line.entry, line.entry.run_input.experiment
    return {
        "run": entry.name,
        "variant": entry.variant,
        "label": entry.label or "",
        "seed": entry.seed,
        **{f"axis.{axis}": value for axis, value in entry.axes.items()},
        "identity": entry.identity,
        "status": str(line.status),
        "reason": line.reason,
        "target_accuracy": experiment.stop.target,
        **results_of(line.run),
        "rules": entry.rules,
        "sources": "; ".join(f"{source.key} {source.digest}" for source in entry.sources),
        # as text: a column has an int and a float as they were written, though some runs may lack the key
        **{f"input.{key}": setting_text(value) for key, value in flat(resolved(experiment)).items()},
    }


def _is_text(frame: pd.DataFrame) -> bool:
    return frame["site"].dtype.kind not in "iuf"


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame as `read_tables` reads it."""
    if _is_text(frame):
        return frame
    return pd.read_csv(BytesIO(csv_bytes(frame)), dtype=str, keep_default_na=False)


def _concat(frames: Mapping[str, pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Rows of the frames of several runs below each other, with the identity of the run in the first column. Columns
    that a run does not have are empty."""
    if not frames:
        return pd.DataFrame(columns=["identity", *columns])
    rows = pd.concat(frames, names=["identity"]).reset_index(level="identity").reset_index(drop=True)
    return _without_gaps(rows)


def _without_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """The table with empty texts where rows lack a text."""
    texts = [name for name in table if table[name].dtype.kind not in "if"]
    return table.assign(**{name: table[name].fillna("") for name in texts})


HEAD = (
    "variant",
    "TTA h (95 % interval)",
    "seeds",
    "reached",
    "best accuracy",
    "ratio to the first, by seed (95 %)",
)


def _head(lines: Sequence[RunState]) -> tuple[str, ...]:
    of_world = any(line.entry.world for line in lines)
    return (*HEAD[:-1], HEAD[-1].replace("the first", "the first of its world")) if of_world else HEAD


def _variants(lines: Sequence[RunState]) -> Iterator[tuple[tuple[str, ...], dict[str, object]]]:
    """(cells below HEAD, numbers) of each variant with its finished runs, in the order of the grid.

    The ratio to the first variant of the same world is unknown if that has another target accuracy or shares no seed.
    """
    variants: dict[str, list[RunState]] = {}
    for line in lines:
        variants.setdefault(line.entry.variant, []).append(line)
    firsts: dict[str, tuple[Times | None, float]] = {}
    for name, members in variants.items():
        finished = [line.run for line in members if line.finished and line.run]
        target = members[0].entry.run_input.experiment.stop.target
        times = times_of(finished, target) if finished else None
        first = firsts.setdefault(members[0].entry.world, (times, target))
        comparable = times and first[0] and target > 0 and target == first[1]
        ratio = compare(times, first[0]) if comparable else Estimate.mean([])
        labels = {"variant": name, **members[0].entry.axes, "target_accuracy": target}
        yield (name, *_cells(times, len(members), target, ratio)), labels | _numbers(times, ratio)


def _cells(times: Times | None, num_planned: int, target: float, ratio: Estimate) -> tuple[str, ...]:
    if times is None:
        return "-", f"0 of {num_planned}", "-", "-", "-"
    seeds = str(num_planned) if times.num_seeds == num_planned else f"{times.num_seeds} of {num_planned}"
    accuracy = f"{times.best_accuracy:.4f}"
    if math.isnan(target):
        return "no target", seeds, "-", accuracy, "-"
    return str(times), seeds, f"{times.num_reached}/{times.num_seeds}", accuracy, ratio.text()


def _numbers(times: Times | None, ratio: Estimate) -> dict[str, object]:
    missing = dict.fromkeys(("mean_h", "low_h", "high_h", "best_accuracy"), math.nan)
    numbers = times.row() if times else missing | {"mean_is": "", "num_seeds": 0, "num_reached": 0}
    bounds = {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return numbers | bounds | {"ratio_is": ratio.bound, "num_pairs": ratio.n}
