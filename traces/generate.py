"""Write synthetic power traces as files in the layout of Google's PowerData2019 (traces/SOURCES.md).

    python traces/generate.py my_traces                  # a month, 57 files, 2.3 MB
    python traces/generate.py my_traces --days 3 --compact   # one small file with all domains

Any scenario then reads them with `path = "my_traces"` in its [power] table. `path = "synthetic"` needs no files: it is
the same month as `--seed 2019`.
"""

from __future__ import annotations

from pathlib import Path

import click

from hpctrip.sim.traces.files import write_csv_gz
from hpctrip.sim.traces.synthetic import synthetic_table


@click.command(help=__doc__.split("\n")[0])
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--days", type=click.FloatRange(0.01, 31), default=31, show_default=True, help="Days from 1 May."
)
@click.option("--seed", default=2019, show_default=True, help="Which synthetic month.")
@click.option("--compact", is_flag=True, help="One file with all domains, without the flag columns.")
def main(folder: Path, days: float, seed: int, compact: bool) -> None:
    """Generate, then write: one file per domain, or one for all."""
    folder.mkdir(parents=True, exist_ok=True)
    table = synthetic_table(seed, days)
    if compact:
        table = table.drop(columns=["bad_measurement_data", "bad_production_power_data"])
        files = {f"cells_{days:g}days_synthetic.csv.gz": table}
    else:
        domains = table.groupby(["cell", "pdu"], sort=False)
        files = {f"cell{cell}_{pdu}_synthetic.csv.gz": rows for (cell, pdu), rows in domains}
    comment = f"synthetic, made by hpctrip traces/generate.py --days {days:g} --seed {seed}"
    for name, rows in files.items():
        write_csv_gz(rows, folder / name, comment)
    click.echo(f"{len(table)} synthetic rows in {len(files)} file(s) under {folder}")


if __name__ == "__main__":
    main()
