"""Tables of a study: the comparison of its variants, and tidy tables of its runs.

runs.csv, curves.csv and sites.csv have one row per run, round and site, and name runs by their identity. Claims, fits
and figures of one's own can be made from them when the study has ended. In all tables, the ledger included, times are
in seconds, energy in kWh, CO2 in kg.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from hpctrip.base.csv import Table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import read_text, replace_file
from hpctrip.base.stats import Estimate, Times, compare
from hpctrip.base.text import aligned, markdown_table
from hpctrip.base.units import HOUR_S
from hpctrip.config.identity import flat
from hpctrip.config.inputs import Tables
from hpctrip.record.formats import cell, csv_bytes, latex_table, tex
from hpctrip.record.merge import setting_text
from hpctrip.record.reader import Run
from hpctrip.studies.imported import TOTALS
from hpctrip.studies.run_store import RunState


class RunRows:
    """A CSV table with some rows for each run, whose identity is the first column. Rows can be kept from the last time
    that it was written, so that the results of runs that have not changed need not be read again."""

    def __init__(self, path: Path, columns: Sequence[str]):
        """The table in a file; empty, with these columns, if it cannot be read."""
        self.path, self._columns = path, ["identity", *columns]
        self._rows: dict[str, list[list[str]]] = defaultdict(list)
        with suppress(InputError, csv.Error, ValueError):
            header, *rows = csv.reader(StringIO(read_text(path)))
            if header[: len(columns) + 1] == self._columns and {len(header)}.issuperset(map(len, rows)):
                self._columns = header
                for row in rows:
                    self._rows[row[0]].append(row)

    def of(self, identity: str) -> Table:
        """The rows of a run."""
        rows = self._rows[identity]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(self._columns)}
        return Table(str(self.path), columns, range(len(rows)), "")

    def __contains__(self, identity: str) -> bool:
        return identity in self._rows

    def put(self, identity: str, frame: pd.DataFrame) -> None:
        """Replace the rows of a run. Columns that not all runs have come last, empty for the others."""
        self._columns += [name for name in frame if name not in self._columns]
        _, *cells = csv.reader(StringIO(csv_bytes(frame).decode()))
        rows = (dict(zip(frame, row, strict=True)) for row in cells)
        self._rows[identity] = [
            [identity, *(row.get(name, "") for name in self._columns[1:])] for row in rows
        ]

    def write(self, identities: Iterable[str]) -> None:
        """Write the rows of these runs, in this order."""
        rows = chain.from_iterable(self._rows[identity] for identity in identities)
        width, text = len(self._columns), StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(cell, self._columns))
        writer.writerows([*row, *[""] * (width - len(row))] for row in rows)
        replace_file(self.path, text.getvalue().encode())


def write_tables(
    folder: Path,
    facts: Mapping[str, str],
    lines: Sequence[RunState],
    rows: Iterable[RunRows],
    asked: Collection[str] | None = None,
) -> list[str]:
    """Write all tables of a study. `facts` are columns with the same text for all runs, its title among them; `rows`
    hold those of finished runs. Returns the lines to print, without variants of which no run is there or among the
    identities `asked`; None: all."""
    cells, numbers = zip(*_variants(lines), strict=True)
    tables = {
        "table.csv": pd.DataFrame(numbers),
        "runs.csv": _without_gaps(
            pd.DataFrame([facts | _row(line) | own for line, own in zip(lines, _inputs(lines), strict=True)])
        ),
    }
    for name, table in tables.items():
        replace_file(folder / name, csv_bytes(table))
    for each in rows:
        each.write(line.entry.identity for line in lines if line.finished)
    head = _head(lines)
    page = f"# {facts['title']}\n\n{markdown_table(head, cells)}\n\n{_note(lines)}\n"
    replace_file(folder / "table.md", page.encode())
    known = {e.entry.variant for e in lines if asked is None or e.finished or e.entry.identity in asked}
    return [
        facts["title"],
        *aligned(head, [row for row in cells if row[0] in known]),
        f"table: {folder / 'table.csv'}, {folder / 'table.md'}",
        f"runs, curves, sites: {', '.join(str(folder / name) for name in ('runs.csv', 'curves.csv', 'sites.csv'))}",
    ]


def comparison(title: str, lines: Sequence[RunState], latex: bool) -> list[str]:
    """The comparison of the variants as aligned lines, or as a table for LaTeX with the package booktabs, with a
    caption."""
    head, cells = _head(lines), [list(cells) for cells, _ in _variants(lines)]
    if not latex:
        return [title, *aligned(head, cells)]
    caption = tex(f"{title}. {_note(lines)}")
    table = latex_table(head, cells)
    return [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", *table, r"\end{table}"]


def _note(lines: Sequence[RunState]) -> str:
    """What the columns of the comparison mean, and what in it is synthetic."""
    finished = [line for line in lines if line.finished]
    targets = {line.entry.run_input.experiment.stop.target for line in lines}
    target = f"an accuracy of {targets.pop():g}" if len(targets) == 1 else "the target accuracy of its run"
    first = "the first row of its world" if lines[0].entry.world else lines[0].entry.variant
    parts = dict.fromkeys(chain.from_iterable(results_of(line)["synthetic"].split(", ") for line in finished))
    synthetic = f" Synthetic: {', '.join(filter(None, parts))}." if any(parts) else ""
    return (
        f"TTA: simulated time to {target}, arithmetic mean over the seeds with its 95 % interval. "
        f"Ratio to {first}: geometric mean over common seeds. Energy, CO2 and cost: arithmetic means of whole runs."
        f"{synthetic}"
    )


def _counted(lines: Sequence[RunState]) -> list[str]:
    """Those of `TOTALS` that finished runs have: energy, and carbon and money where they were counted."""
    results = [results_of(line) for line in lines if line.finished]
    return [name for name in TOTALS if any(each[name] and not math.isnan(each[name]) for each in results)]


LEDGER_RESULTS = {
    "num_rounds": "rounds",
    "clock_s": "end_s",
    "time_to_accuracy_s": "clock_s",
    "best_accuracy": "accuracy",
    "params_digest": "digest",
    **{name: name for name in ("wall_s", *TOTALS, "synthetic", "made_with")},
}
"""{name among `results_of` a run: column of the ledger}."""
NUMBERS = ("clock_s", "time_to_accuracy_s", "best_accuracy", "wall_s", *TOTALS)
"""Those that are numbers; NaN where there is none."""


def results_of(line: RunState) -> dict[str, Any]:
    """The results of a run as columns of tables; empty or NaN before its first round. `clock_s` is the simulated time
    at the end."""
    if line.row is not None:
        return {name: line.row[column] for name, column in LEDGER_RESULTS.items()}
    run = line.run
    if run is None or not len(run.rounds):
        return {name: math.nan if name in NUMBERS else "" for name in LEDGER_RESULTS}
    return {
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


def _total(run: Run, name: str) -> float:
    """One of `TOTALS`: the sum over all rounds; NaN where it is unknown in one of them."""
    quantity = TOTALS[name]
    if quantity.column in run.rounds:
        return float(run.rounds[quantity.column].sum(skipna=False)) / quantity.total_unit
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
    entry = line.entry
    return {
        "run": entry.name,
        "variant": entry.variant,
        "label": entry.label or "",
        "seed": entry.seed,
        **{f"axis.{axis}": value for axis, value in entry.axes.items()},
        "identity": entry.identity,
        "status": str(line.status),
        "reason": line.reason,
        "target_accuracy": entry.run_input.experiment.stop.target,
        **results_of(line),
        "rules": entry.rules,
        "sources": "; ".join(f"{source.key} {source.digest}" for source in entry.sources),
    }


def _inputs(lines: Sequence[RunState]) -> Iterator[dict[str, str]]:
    """The input of each run as columns of texts: one column has an int and a float as they were written, though some
    runs may lack its key."""
    apart: Tables = {}
    columns: dict[str, str] = {}
    for tables in (line.entry.resolved for line in lines):
        if (of_all_seeds := tables | {"seed": None}) != apart:
            apart = of_all_seeds
            columns = {f"input.{key}": setting_text(value) for key, value in flat(tables).items()}
        yield columns | {"input.seed": setting_text(tables["seed"])}


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
_SPENT_HEADS = {"energy_kwh": "energy kWh", "carbon_kg": "CO2 kg", "cost": "cost"}


def _head(lines: Sequence[RunState]) -> tuple[str, ...]:
    of_world = any(line.entry.world for line in lines)
    head = (*HEAD[:-1], HEAD[-1].replace("the first", "the first of its world")) if of_world else HEAD
    spent = [_SPENT_HEADS[name] for name in _counted(lines)]
    return (*head, *spent, *["deadline"] * _have_deadlines(lines))


def _have_deadlines(lines: Sequence[RunState]) -> bool:
    """Whether one of the variants asks for the target by a time."""
    return any(line.entry.run_input.experiment.deadline_s > 0 for line in lines)


def _variants(lines: Sequence[RunState]) -> Iterator[tuple[tuple[str, ...], dict[str, object]]]:
    """(cells below HEAD, numbers) of each variant with its finished runs, in the order of the grid.

    The ratio to the first variant of the same world is unknown if that has another target accuracy or shares no seed.
    """
    variants: dict[str, list[RunState]] = {}
    with_deadlines, counted = _have_deadlines(lines), _counted(lines)
    for line in lines:
        variants.setdefault(line.entry.variant, []).append(line)
    firsts: dict[str, tuple[Times | None, float]] = {}
    for name, members in variants.items():
        experiment, finished = members[0].entry.run_input.experiment, [x for x in members if x.finished]
        results, target, times = [*map(results_of, finished)], experiment.stop.target, _times(finished)
        first = firsts.setdefault(members[0].entry.world, (times, target))
        comparable = times and first[0] and target > 0 and target == first[1]
        ratio = compare(times, first[0]) if comparable else Estimate.mean([])
        labels = {"variant": name, **members[0].entry.axes, "target_accuracy": target}
        spent = {key: Estimate.mean([each[key] for each in results]).value for key in counted}
        cells = (name, *_cells(times, len(members), target, ratio))
        currency = experiment.accounts.currency
        cells += tuple(_amount(mean, currency * (key == "cost")) for key, mean in spent.items())
        numbers = labels | _numbers(times, ratio) | spent
        if "cost" in spent:
            numbers["currency"] = currency
        if with_deadlines:
            deadline_s = experiment.deadline_s
            missed = sum(not each["time_to_accuracy_s"] <= deadline_s for each in results)
            cells = (*cells, _verdict(deadline_s, missed, len(results)))
            numbers |= {"deadline_s": deadline_s, "num_missed": missed if deadline_s > 0 else 0}
        yield cells, numbers


def _amount(mean: float, unit: str) -> str:
    return "-" if math.isnan(mean) else f"{mean:.4g} {unit}".strip()


def _verdict(deadline_s: float, missed: int, finished: int) -> str:
    """The deadline of a variant, and how many of its finished runs missed it."""
    verdict = f": missed by {missed} of {finished}" if missed else ": met" if finished else ""
    return f"{deadline_s / HOUR_S:.3g} h{verdict}" if deadline_s > 0 else "-"


def _times(lines: Sequence[RunState]) -> Times | None:
    """The times to their target of the finished runs of a variant; None if there are none."""
    by_seed = []
    for line in lines:
        results = results_of(line)
        reached = math.isfinite(results["time_to_accuracy_s"])
        spent_s = results["time_to_accuracy_s" if reached else "clock_s"]
        by_seed.append((line.entry.seed, spent_s / HOUR_S, reached, results["best_accuracy"]))
    return Times.of(by_seed) if by_seed else None


def _cells(times: Times | None, num_planned: int, target: float, ratio: Estimate) -> tuple[str, ...]:
    if times is None:
        return "-", f"0 of {num_planned}", "-", "-", "-"
    seeds = str(num_planned) if times.num_seeds == num_planned else f"{times.num_seeds} of {num_planned}"
    accuracy = f"{times.best_accuracy:.4f}"
    if math.isnan(target):
        return "no target", seeds, "-", accuracy, "-"
    return str(times), seeds, f"{times.num_reached}/{times.num_seeds}", accuracy, ratio.text()


def _numbers(times: Times | None, ratio: Estimate) -> dict[str, object]:
    hours = ("mean_h", "low_h", "high_h")
    missing = dict.fromkeys((*hours, "best_accuracy"), math.nan)
    row = times.row() if times else missing | {"mean_is": "", "num_seeds": 0, "num_reached": 0}
    numbers = {name.replace("_h", "_s"): HOUR_S * row.pop(name) for name in hours} | row
    bounds = {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return numbers | bounds | {"ratio_is": ratio.bound, "num_pairs": ratio.n}
