"""A calibration's result in every form in which it is kept: Markdown, JSON, two tables and an input."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pandas as pd
import tomli_w

from hpctrip.base.inputs import Tables, deep, nested, resolved
from hpctrip.base.text import markdown_table
from hpctrip.study.calibrate.points import Point
from hpctrip.study.calibrate.report import BARS, METHOD, PROFILE, Report
from hpctrip.study.grid import shown

SAMPLES = ("train_samples", "test_samples")
"""Keys of the workload on which the rounds to the target, and so the hours, depend."""


def markdown(report: Report) -> str:
    """The result as a page."""
    file = report.found.runs.file
    parts = [
        f"# {file.title or file.name}",
        f"`{report.again}`",
        METHOD,
        markdown_table(BARS, report.bar_rows),
        "\n".join(f"* {line.strip()}" for line in report.said),
        markdown_table(PROFILE, report.profile_rows),
    ]
    return "\n\n".join(parts) + "\n"


def points(report: Report) -> pd.DataFrame:
    """Every point, the best first."""
    rows = []
    for point in report.found.points:
        named = dict(zip(report.found.runs.keys, point.values, strict=True))
        error = {"target_accuracy": point.target, "error": point.bars.rms, "is": point.bars.sort}
        hours = {f"{label} h": value for label, value in zip(report.labels, point.hours, strict=True)}
        rows.append(named | error | hours)
    return pd.DataFrame(rows)


def profile(report: Report) -> pd.DataFrame:
    """Every value of every constant."""
    return pd.DataFrame(_profile(report)).assign(value=lambda table: table["value"].map(shown))


def plain(report: Report) -> dict[str, Any]:
    """For other programs."""
    found = report.found
    return {
        "calibration": found.runs.file.name,
        "command": report.again,
        "paper_hours": {bar.label: bar.hours for bar in found.runs.file.bar},
        "best": _plain(report, found.best),
        "as_the_inputs_are": _plain(report, found.default),
        "points_that_may_be_better": len(found.promising),
        "constants": _profile(report),
    }


def overlay(report: Report) -> str | None:
    """An input to be laid over others: what was fitted, and what of the runs it holds for; None: nothing is yet."""
    best, runs = report.found.best, report.found.runs
    if best is None:
        return None
    workload = resolved(runs.first.experiment.workload)
    samples = {key: workload[key] for key in SAMPLES if workload.get(key) is not None}
    tables: Tables = reduce(
        deep, map(nested, runs.keys, best.values), {"workload": samples} if samples else {}
    )
    tables = deep(tables, {"stop": {"target_accuracy": best.target}})
    comment = [
        f"Fitted by `{report.again}` to {', '.join(report.labels)}:",
        f"error {best.bars}, against {report.found.default.bars} of the inputs as they are.",
        "It holds for so many samples; what else it says of the paper is a test, not a fit.",
    ]
    return "".join(f"# {line}\n" for line in comment) + tomli_w.dumps(tables)


def _profile(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "constant": row.key,
            "value": row.value,
            "error": row.point.bars.rms,
            "is": row.point.bars.sort,
            "verdict": row.verdict,
        }
        for row in report.rows
    ]


def _plain(report: Report, point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {
        "constants": dict(zip(report.found.runs.keys, point.values, strict=True)),
        "target_accuracy": point.target,
        "error": point.bars.rms,
        "is": point.bars.sort,
        "hours": dict(zip(report.labels, point.hours.tolist(), strict=True)),
    }
