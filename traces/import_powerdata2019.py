"""Check downloaded PowerData2019 files (traces/SOURCES.md), and pack them into one file.

    python traces/import_powerdata2019.py downloads                              # a table of what is there
    python traces/import_powerdata2019.py downloads --out powerdata2019.csv.gz   # for path = "powerdata2019.csv.gz"

Takes what `path` takes: a folder, a file or a glob. The packed file holds all domains over their common time; bad and
missing samples are replaced by the previous good one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import click
import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.sim.series import Series
from hpctrip.sim.times import TimeUnit
from hpctrip.sim.traces.files import COLUMNS, Flags, read_trace_files, write_csv_gz


@click.command(help=__doc__.split("\n")[0])
@click.argument("path")
@click.option(
    "--flags",
    type=click.Choice(get_args(Flags)),
    default="true-is-bad",
    show_default=True,
    help="What true means in the flag columns.",
)
@click.option(
    "--time-unit",
    type=click.Choice(get_args(TimeUnit)),
    default="us",
    show_default=True,
    help="Unit of the column time.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write one packed csv.gz here.")
def main(path: str, flags: Flags, time_unit: TimeUnit, out: Path | None) -> None:
    """Read each utilisation column that the files have, describe it, and pack them."""
    found: dict[str, Series] = {}
    for column in COLUMNS:
        try:
            found[column] = read_trace_files(path, column, flags, time_unit)
        except InputError as error:
            click.echo(f"{column}: not usable. {error}\n", err=True)
        else:
            describe(column, found[column])
    if not found:
        sys.exit(InputError.exit_code)
    if out is not None:
        synthetic = any(traces.synthetic for traces in found.values())
        write_csv_gz(
            packed(found),
            out,
            "synthetic" if synthetic else "repacked by hpctrip traces/import_powerdata2019.py",
        )
        click.echo(f"wrote {out}")


def describe(column: str, traces: Series) -> None:
    """Print one line per domain and one per cell."""
    num_domains, num_steps = traces.value.shape
    click.echo(
        f"{column} utilisation: {num_domains} domains, {num_steps} steps of {traces.step_s:g} s"
        f" ({traces.duration_s / 86400:.1f} days){', SYNTHETIC' if traces.synthetic else ''}"
    )
    domains = pd.DataFrame(
        {
            "cell": traces.cells,
            "mean": traces.value.mean(axis=1),
            "min": traces.value.min(axis=1),
            "max": traces.value.max(axis=1),
        },
        index=traces.names,
    )
    click.echo(domains.to_string(float_format="{:.3f}".format))
    cells = domains.groupby("cell").agg(
        domains=("mean", "size"),
        mean=("mean", "mean"),
        min=("min", "min"),
        max=("max", "max"),
    )
    click.echo(f"\n{cells.to_string(float_format='{:.3f}'.format)}\n")


def packed(found: dict[str, Series]) -> pd.DataFrame:
    """One row per domain and step: time, cell, pdu, and the utilisations found."""
    traces = next(iter(found.values()))
    num_domains, num_steps = traces.value.shape
    time = traces.time_us[0] + np.arange(num_steps) * round(traces.step_s * 1e6)
    pdus = [name.removeprefix(f"cell{cell}_") for name, cell in zip(traces.names, traces.cells, strict=True)]
    return pd.DataFrame(
        {
            "time": np.tile(time, num_domains),
            "cell": np.repeat(traces.cells, num_steps),
            "pdu": np.repeat(pdus, num_steps),
            **{COLUMNS[column][0]: one.value.ravel() for column, one in found.items()},
        }
    )


if __name__ == "__main__":
    main()
